package groups

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
)

// firstRange is how long the first service that is written waits for a range of
// cluster IPs, and rangePoll how often it looks.
const (
	firstRange = time.Second
	rangePoll  = 2 * time.Millisecond
)

// awaitedBy lets what is written to services wait, once, until a range is known: the
// allocator looks only every 100 ms whether the ranges were read
// (cache.WaitForCacheSync), and until it has looked says that they are full.
func (a *allocators) awaitedBy(services *genericregistry.Store) {
	create, update := services.BeginCreate, services.BeginUpdate
	services.BeginCreate = func(ctx context.Context, obj runtime.Object, options *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
		a.await()
		return create(ctx, obj, options)
	}
	services.BeginUpdate = func(ctx context.Context, obj, old runtime.Object, options *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
		a.await()
		return update(ctx, obj, old, options)
	}
}

func (a *allocators) await() {
	a.ranges.Do(func() {
		ticker := time.NewTicker(rangePoll)
		defer ticker.Stop()
		for end := time.Now().Add(firstRange); !a.knowRange() && time.Now().Before(end); {
			<-ticker.C
		}
	})
}

// knowRange reports whether each family has a range. The allocator for dry runs is one of no family
// until then.
func (a *allocators) knowRange() bool {
	return !slices.ContainsFunc(a.families, func(f ipallocator.Interface) bool { return f.DryRun().IPFamily() == "" })
}
