package rbac

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Resources finds the resources that may be served from the cache.
type Resources interface {
	Lookup(gvr schema.GroupVersionResource) (*source.Resource, bool)
}

// GroupVersionResources returns the resources that RBAC decides by.
func GroupVersionResources() []schema.GroupVersionResource {
	gv := schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	return []schema.GroupVersionResource{
		gv.WithResource("roles"), gv.WithResource("rolebindings"),
		gv.WithResource("clusterroles"), gv.WithResource("clusterrolebindings"),
	}
}

// retryInterval is the time between attempts to watch a resource. Until one succeeds, revocations
// take effect when cached decisions expire.
const retryInterval = 10 * time.Second

// Follow calls changed whenever an object that RBAC decides by changes, or may have changed
// unnoticed. It returns when ctx ends.
func Follow(ctx context.Context, resources Resources, manager *cache.Manager, changed func(), log *slog.Logger) {
	var wg sync.WaitGroup
	for _, gvr := range GroupVersionResources() {
		manager.Panics().Keep(&wg, "background", func() {
			discovery.Retry(ctx, retryInterval, func() (bool, error) {
				followed, err := followResource(ctx, resources, manager, gvr, changed)
				if followed {
					changed() // Changes are unnoticed from now on. Once, as everything is reviewed again.
				}
				return followed, err
			}, func(err error) {
				log.Warn("rbac objects are not watched, retrying; revocations take effect when cached decisions expire",
					"resource", gvr.Resource, "error", err)
			})
		})
	}
	wg.Wait()
}

// followResource reports whether it could follow gvr for some time, and why it stopped.
func followResource(ctx context.Context, resources Resources, manager *cache.Manager, gvr schema.GroupVersionResource, changed func()) (followed bool, err error) {
	res, ok := resources.Lookup(gvr)
	if !ok {
		return false, discovery.ErrNotServed
	}
	c, err := manager.Collection(ctx, res, api.JSON)
	if err != nil {
		return false, err
	}
	return true, discovery.FollowCollection(ctx, c,
		func([]*object.Object) {
			if !c.Unconfirmed() { // else the saved decisions are by the same objects
				changed()
			}
		},
		func(d watchmux.Delivery) {
			if decides(d.Event) {
				changed()
			}
		})
}

// decides reports whether an event can change a decision: one that changes only metadata does not.
func decides(e *watchmux.Event) bool {
	if e.Type != api.Modified || e.Prev == nil {
		return true
	}
	was, is := e.Prev, e.Object
	return !bytes.Equal(was.Raw[:was.MetaStart], is.Raw[:is.MetaStart]) || !bytes.Equal(was.Raw[was.MetaEnd:], is.Raw[is.MetaEnd:])
}
