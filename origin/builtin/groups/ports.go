package groups

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/service/allocator"
)

// portsKey is where the allocated node ports are kept.
const portsKey = "/ranges/servicenodeports"

// errFull: there is nothing left to allocate, or not this one.
var errFull = errors.New("unable to allocate")

// A portRegistry is the bitmap of node ports, which one object of the store holds,
// so that several servers on one store hand out each port once. It is to the origin
// what service/allocator/storage.Etcd is to kube-apiserver, and keeps the same
// object under the same key.
type portRegistry struct {
	resource schema.GroupResource
	store    storage.Interface
	close    func()

	mu struct {
		sync.Mutex
		bits allocator.Snapshottable // as last read or written
	}
}

func newPortRegistry(opts generic.RESTOptionsGetter, bits allocator.Snapshottable) (*portRegistry, error) {
	resource := schema.GroupResource{Resource: "servicenodeportallocations"}
	// Encoded as services are.
	services, err := opts.GetRESTOptions(schema.GroupResource{Resource: "services"}, &api.Service{})
	if err != nil {
		return nil, err
	}
	newFunc := func() runtime.Object { return &api.RangeAllocation{} }
	keyOf := func(runtime.Object) (string, error) { return portsKey, nil }
	config := services.StorageConfig.ForResource(resource)
	config.Transformer = nil // kube-apiserver never encrypts them, and has to be able to read them
	store, destroy, err := services.Decorator(config, portsKey, keyOf,
		newFunc, newFunc, nil, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("store of %s: %w", resource, err)
	}
	r := &portRegistry{resource: resource, store: store, close: sync.OnceFunc(destroy)}
	r.mu.bits = bits
	return r, nil
}

// Allocate takes one port; false: it is taken.
func (r *portRegistry) Allocate(offset int) (bool, error) {
	err := r.change(func(bits allocator.Snapshottable) error {
		ok, err := bits.Allocate(offset)
		if err == nil && !ok {
			err = errFull
		}
		return err
	})
	if errors.Is(err, errFull) {
		return false, nil
	}
	return err == nil, err
}

// AllocateNext takes any port that is free; false: none is.
func (r *portRegistry) AllocateNext() (offset int, ok bool, err error) {
	err = r.change(func(bits allocator.Snapshottable) error {
		var err error
		offset, ok, err = bits.AllocateNext()
		if err == nil && !ok {
			err = errFull
		}
		return err
	})
	if errors.Is(err, errFull) {
		return offset, false, nil
	}
	return offset, err == nil, err
}

// Release frees a port.
func (r *portRegistry) Release(offset int) error {
	return r.change(func(bits allocator.Snapshottable) error { return bits.Release(offset) })
}

// change applies f to the newest state and writes it; f may be called repeatedly.
func (r *portRegistry) change(f func(allocator.Snapshottable) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.store.GuaranteedUpdate(context.Background(), portsKey, &api.RangeAllocation{}, true, nil,
		storage.SimpleUpdate(func(in runtime.Object) (runtime.Object, error) {
			existing := in.(*api.RangeAllocation)
			if existing.ResourceVersion == "" {
				return nil, fmt.Errorf("cannot allocate resources of type %s at this time", r.resource)
			}
			// Also when it is the one last seen: a write of it may have failed.
			if err := r.mu.bits.Restore(existing.Range, existing.Data); err != nil {
				return nil, err
			}
			if err := f(r.mu.bits); err != nil {
				return nil, err
			}
			existing.Range, existing.Data = r.mu.bits.Snapshot()
			return existing, nil
		}), nil)
	return storeerr.InterpretUpdateError(err, r.resource, "")
}

// Get reads the state; without a resourceVersion when there is none yet.
func (r *portRegistry) Get() (*api.RangeAllocation, error) {
	existing := &api.RangeAllocation{}
	err := r.store.Get(context.Background(), portsKey, storage.GetOptions{IgnoreNotFound: true}, existing)
	return existing, storeerr.InterpretGetError(err, r.resource, "")
}

// CreateOrUpdate writes a state, unless it changed since it was read with Get.
func (r *portRegistry) CreateOrUpdate(snapshot *api.RangeAllocation) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.store.GuaranteedUpdate(context.Background(), portsKey, &api.RangeAllocation{}, true, nil,
		storage.SimpleUpdate(func(in runtime.Object) (runtime.Object, error) {
			existing := in.(*api.RangeAllocation)
			switch {
			case snapshot.ResourceVersion != "" && existing.ResourceVersion != "":
				if snapshot.ResourceVersion != existing.ResourceVersion {
					return nil, apierrors.NewConflict(r.resource, "", errors.New("the provided resource version does not match"))
				}
			case existing.ResourceVersion != "":
				return nil, apierrors.NewConflict(r.resource, "", errors.New("another caller has already initialized the resource"))
			}
			return snapshot, nil
		}), nil)
	if err != nil {
		return storeerr.InterpretUpdateError(err, r.resource, "")
	}
	return r.mu.bits.Restore(snapshot.Range, snapshot.Data)
}

// ForEach, Has and Free tell of the state this process knows.
func (r *portRegistry) ForEach(f func(int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.bits.ForEach(f)
}

// Has reports whether a port is taken.
func (r *portRegistry) Has(offset int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.bits.Has(offset)
}

// Free is the number of ports that are not taken.
func (r *portRegistry) Free() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.bits.Free()
}

// Destroy closes the store's part.
func (r *portRegistry) Destroy() { r.close() }
