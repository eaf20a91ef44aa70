package proxy

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/proxy/authz/rbac"
	"github.com/kubeweir/kubeweir/proxy/discovery"
)

// TestLostWatchIsLoggedEachTime: the gateway logs each time that it can no longer watch
// definitions, APIServices or RBAC objects, also for a reason that it has logged before.
func TestLostWatchIsLoggedEachTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		served := fakeDiscovery{}
		var all []*source.Resource
		for _, gvr := range append(rbac.GroupVersionResources(), discovery.CustomResourceDefinitions, discovery.APIServices) {
			all = append(all, &source.Resource{GroupVersionResource: gvr, Kind: "CustomResourceDefinition", Schema: object.SchemaFor(gvr)})
			served[gvr] = discovery.ServerResource{GroupVersionResource: gvr, Kind: "CustomResourceDefinition", Verbs: []string{"list", "watch"}}
		}
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(&text, nil))
		manager, err := cache.NewManager(cache.Options{Source: cachetest.New(all...), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer manager.Close()
		resources := discovery.NewResources(served, builtinKinds{}, manager, log, discovery.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{}, 2)
		go func() { resources.Run(ctx); ended <- struct{}{} }()
		go func() { rbac.Follow(ctx, resources, manager, func() {}, log); ended <- struct{}{} }()
		time.Sleep(time.Minute)
		for n := 1; n <= 3; n++ {
			for _, gvr := range []schema.GroupVersionResource{discovery.CustomResourceDefinitions, discovery.APIServices, rbac.GroupVersionResources()[0]} {
				manager.Drop(gvr, errors.New("it broke"))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, what := range []string{"custom resource definitions are not watched", "rbac objects are not watched", "APIServices are not watched"} {
				if logged := strings.Count(text.String(), what); logged != n {
					t.Errorf("%q: told %d times after %d", what, logged, n)
				}
			}
		}
		if t.Failed() {
			t.Log(text.String())
		}
		cancel()
		<-ended
		<-ended
	})
}
