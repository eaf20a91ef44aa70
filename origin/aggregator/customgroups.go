package aggregator

import (
	"context"
	"sync"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
)

// customGroups keeps an APIService for every served group and version of the definitions
// (KK pkg/controlplane/controller/crdregistration). All of them are compared at every
// change of a definition: there are few, and nothing has to be remembered per group.
type customGroups struct {
	crds     crdinformers.CustomResourceDefinitionInformer
	register autoregister.AutoAPIServiceRegistration
	// changed has room for one: more changes before the next look are one.
	changed chan struct{}
	// synced is closed when the definitions that exist at start are registered.
	synced chan struct{}
	once   sync.Once
	// have is what was registered; of run alone.
	have map[schema.GroupVersion]bool
}

func newCustomGroups(crds crdinformers.CustomResourceDefinitionInformer, register autoregister.AutoAPIServiceRegistration) (*customGroups, error) {
	c := &customGroups{
		crds:     crds,
		register: register,
		changed:  make(chan struct{}, 1),
		synced:   make(chan struct{}),
		have:     map[schema.GroupVersion]bool{},
	}
	_, err := crds.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.look() },
		UpdateFunc: func(old, now any) {
			before, ok1 := old.(*apiextensions.CustomResourceDefinition)
			after, ok2 := now.(*apiextensions.CustomResourceDefinition)
			if !ok1 || !ok2 || before.UID != after.UID || before.Generation != after.Generation {
				c.look()
			}
		},
		DeleteFunc: func(any) { c.look() },
	})
	return c, err
}

func (c *customGroups) look() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// run registers until ctx ends.
func (c *customGroups) run(ctx context.Context) {
	if !cache.WaitFor(ctx, "", c.crds.Informer().HasSyncedChecker()) {
		return
	}
	for {
		c.compare()
		c.once.Do(func() { close(c.synced) })
		select {
		case <-c.changed:
		case <-ctx.Done():
			return
		}
	}
}

// compare registers the groups and versions that are new and takes back those that are
// gone.
func (c *customGroups) compare() {
	crds, err := c.crds.Lister().List(labels.Everything())
	if err != nil {
		return // a lister reads memory and has no reason to fail
	}
	want := map[schema.GroupVersion]bool{}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			if version.Served {
				want[schema.GroupVersion{Group: crd.Spec.Group, Version: version.Name}] = true
			}
		}
	}
	for gv := range want {
		if !c.have[gv] {
			c.register.AddAPIServiceToSync(apiServiceOf(gv, customPriority()))
		}
	}
	for gv := range c.have {
		if !want[gv] {
			c.register.RemoveAPIServiceToSync(gv.Version + "." + gv.Group)
		}
	}
	c.have = want
}
