package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// An aggregated API server may answer each user differently: it is told who asks
// (X-Remote-User) and need not decide by RBAC. What the gateway may see there is no
// measure of what anybody else may. So a group version that an APIService hands to
// another server (spec.service) is forwarded as its client, reads without a
// resourceVersion included, unless the configuration names its group.
//
// While the APIServices are not known, only what is certain to be the cluster's own
// is cached: kinds that are built into kube-apiserver, and custom resources.

// apiServiceRetry is how long APIServices that cannot be watched are left alone.
const apiServiceRetry = 10 * time.Second

var (
	APIServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

	errServerChanged = errors.New("another server serves the group version now")
)

// apiServices says who serves the group versions of the upstream. Resources.mu guards
// it.
type apiServices struct {
	// elsewhere are those that another server serves, and which one (the JSON of
	// spec.service). They count as such until an APIService says otherwise.
	elsewhere map[schema.GroupVersion]string
	// local are those that have an APIService without a service; none while the
	// APIServices are not watched.
	local map[schema.GroupVersion]bool
	// trusted are the groups that may be cached although another server serves them.
	trusted map[string]bool
}

func newAPIServices(trusted []string) apiServices {
	s := apiServices{
		elsewhere: make(map[schema.GroupVersion]string), local: make(map[schema.GroupVersion]bool), trusted: make(map[string]bool),
	}
	for _, group := range trusted {
		s.trusted[group] = true
	}
	return s
}

// mayCache reports whether gv may be cached. itself is whether that is certain to be
// the cluster's own unless an APIService says otherwise.
func (s *apiServices) mayCache(gv schema.GroupVersion, itself bool) bool {
	return s.trusted[gv.Group] || !s.isElsewhere(gv, itself)
}

// mayCacheCustom reports whether what definitions say of gv is what is served.
func (s *apiServices) mayCacheCustom(gv schema.GroupVersion) bool {
	_, elsewhere := s.elsewhere[gv]
	return !elsewhere
}

// isElsewhere reports whether another server may serve gv.
func (s *apiServices) isElsewhere(gv schema.GroupVersion, itself bool) bool {
	_, elsewhere := s.elsewhere[gv]
	return elsewhere || !itself && !s.local[gv]
}

// runAPIServices follows the APIServices until ctx ends. It closes tried when they
// were read, or could not be, for the first time.
func (r *Resources) runAPIServices(ctx context.Context, tried func()) {
	defer tried()
	for told := ""; ctx.Err() == nil; {
		err := r.followAPIServices(ctx, func() {
			tried()
			told = ""
		})
		tried()
		if ctx.Err() != nil {
			return
		}
		r.forgetAPIServices()
		if told != err.Error() {
			told = err.Error()
			r.log.Warn("APIServices are not watched, retrying; only built-in and custom resources are cached", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(apiServiceRetry):
		}
	}
}

// followAPIServices takes over all APIServices, calls read, and takes over their
// changes until the collection ends.
func (r *Resources) followAPIServices(ctx context.Context, read func()) error {
	res, ok := r.Lookup(APIServices)
	if !ok {
		return ErrNotServed
	}
	c, err := r.manager.Collection(ctx, res, api.JSON)
	if err != nil {
		return err
	}
	return FollowCollection(ctx, c, func(initial []*object.Object) {
		r.setAPIServices(initial)
		read()
	}, func(d watchmux.Delivery) {
		gv, service := readAPIService(d.Object)
		if d.Type == api.Deleted {
			r.changeServer(gv, "", false)
		} else {
			r.changeServer(gv, service, service == "")
		}
	})
}

// readAPIService returns the group version of an APIService and who serves it: "" is
// the upstream itself. One that cannot be read is somebody else's.
func readAPIService(o *object.Object) (schema.GroupVersion, string) {
	var service struct {
		Spec struct {
			Group, Version string
			Service        json.RawMessage
		}
	}
	if err := json.Unmarshal(o.Raw, &service); err != nil {
		version, group, _ := strings.Cut(o.Name, ".") // as the API demands of its name
		return schema.GroupVersion{Group: group, Version: version}, err.Error()
	}
	spec := &service.Spec
	if string(spec.Service) == "null" {
		spec.Service = nil
	}
	return schema.GroupVersion{Group: spec.Group, Version: spec.Version}, string(spec.Service)
}

// setAPIServices takes over all APIServices.
func (r *Resources) setAPIServices(all []*object.Object) {
	r.mu.RLock()
	gone := make(map[schema.GroupVersion]bool)
	for gv := range r.mu.servers.elsewhere {
		gone[gv] = true
	}
	r.mu.RUnlock()
	for _, o := range all {
		gv, service := readAPIService(o)
		delete(gone, gv)
		r.changeServer(gv, service, service == "")
	}
	for gv := range gone {
		r.changeServer(gv, "", false)
	}
}

// forgetAPIServices is called when nobody watches them any more.
func (r *Resources) forgetAPIServices() {
	r.mu.RLock()
	local := slices.Collect(maps.Keys(r.mu.servers.local))
	r.mu.RUnlock()
	for _, gv := range local {
		r.changeServer(gv, "", false)
	}
}

// changeServer takes over who serves gv: another server, the upstream itself (local),
// or none. What was cached of another server ends, and what is another's from now on.
func (r *Resources) changeServer(gv schema.GroupVersion, elsewhere string, local bool) {
	r.mu.Lock()
	s := &r.mu.servers
	last := s.elsewhere[gv]
	changed := last != elsewhere
	if elsewhere == "" {
		delete(s.elsewhere, gv)
	} else {
		s.elsewhere[gv] = elsewhere
	}
	if local {
		s.local[gv] = true
	} else {
		delete(s.local, gv)
	}
	var ended []schema.GroupVersionResource
	for gvr, res := range r.mu.builtin {
		if gvr.GroupVersion() != gv {
			continue
		}
		_, known := r.printers.For(gv.WithKind(res.Kind))
		if changed || !s.mayCache(gv, known) || res.Aggregated != s.isElsewhere(gv, known) {
			res.Retire()
			delete(r.mu.builtin, gvr)
			ended = append(ended, gvr)
		}
	}
	if changed {
		ended = append(ended, r.moveCustomLocked(gv, elsewhere != "")...)
	}
	r.mu.Unlock()
	for _, gvr := range ended {
		r.manager.Drop(gvr, errServerChanged)
	}
	if changed {
		r.log.Info("the server of a group version changed", "groupVersion", gv.String(), "service", elsewhere, "before", last)
	}
}

// moveCustomLocked takes the custom resources of gv out of service, or back into it,
// and returns them.
func (r *Resources) moveCustomLocked(gv schema.GroupVersion, out bool) (moved []schema.GroupVersionResource) {
	for name, d := range r.mu.definitions {
		next := *d
		next.resources = slices.Clone(d.resources)
		for i, res := range next.resources {
			if res.GroupVersion() != gv {
				continue
			}
			moved = append(moved, res.GroupVersionResource)
			if out {
				res.Retire() // requests may have it still
				delete(r.mu.custom, res.GroupVersionResource)
			} else {
				next.resources[i] = res.Reinstate(time.Now())
				r.mu.custom[res.GroupVersionResource] = next.resources[i]
			}
		}
		r.mu.definitions[name] = &next
	}
	return moved
}
