package console

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/store"
)

// The store counts the objects of types; their sizes are those in the cache.
func TestStoreTypes(t *testing.T) {
	held := func(group, resource string, encoding api.Encoding, phase reflector.Phase, objects int, bytes int64) cache.CollectionStatus {
		return cache.CollectionStatus{
			Resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Encoding: encoding,
			State: reflector.State{Phase: phase}, Sizes: store.Sizes{Objects: objects, Bytes: bytes},
		}
	}
	h := &handler{collections: []cache.CollectionStatus{
		held("", "pods", api.JSON, reflector.Synced, 2, 2000), held("", "pods", api.Protobuf, reflector.Synced, 2, 900),
		held("apps", "deployments", api.Protobuf, reflector.Stale, 1, 500), held("apps", "deployments", api.JSON, reflector.Synced, 1, 800),
		held("", "events", api.Protobuf, reflector.Synced, 7, 70), held("events.k8s.io", "events", api.JSON, reflector.Synced, 6, 66),
		held("", "secrets", api.JSON, reflector.Starting, 0, 0), held("", "nodes", api.JSON, reflector.Stopped, 0, 0),
		held("example.com", "leases", api.JSON, reflector.Synced, 3, 30),
	}}
	say := func(types []StoreType) string {
		var all []string
		for _, one := range types {
			bytes := "?"
			if one.Bytes != nil {
				bytes = fmt.Sprint(*one.Bytes)
			}
			all = append(all, fmt.Sprintf("%s/%s %d %s", one.Group, one.Resource, one.Objects, bytes))
		}
		return strings.Join(all, ", ")
	}
	c := open(t, func(o *Options) {
		serving(clusterOf("", h))(o)
		o.Mode = Standalone
		o.Types = func() ([]StoreType, string) {
			return []StoreType{
				{Group: "example.com", Resource: "leases", Objects: 3}, {Resource: "deployments", Objects: 1}, {Resource: "events", Objects: 7}, {Resource: "leases", Objects: 4},
				{Resource: "nodes", Objects: 1}, {Resource: "pods", Objects: 2}, {Resource: "secrets", Objects: 9},
			}, "a note"
		}
	})
	const want = "example.com/leases 3 30, /deployments 1 500, /events 7 70, /leases 4 ?, /nodes 1 ?, /pods 2 900, /secrets 9 ?"
	for range 2 { // the counts are cached, and not modified
		if s := read[Store](t, c, "/console/api/store"); say(s.Types) != want || s.TypesNote != "a note" || s.Engine != "embedded" {
			t.Errorf("%s\nwant %s", say(s.Types), want)
		}
	}
	etcd := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubeweir_etcd_available"})
	etcd.Set(1)
	process := prometheus.NewRegistry()
	process.MustRegister(etcd)
	c = open(t, func(o *Options) {
		serving(clusterOf("", h))(o)
		o.Mode, o.Process = Standalone, process
	})
	const inEtcd = "apps/deployments 1 500, /events 7 70, events.k8s.io/events 6 66, example.com/leases 3 30, /pods 2 900"
	if s := read[Store](t, c, "/console/api/store"); say(s.Types) != inEtcd || !s.Available || s.Engine != "etcd" || !strings.Contains(s.TypesNote, "the cache holds") {
		t.Errorf("%s, %q\nwant %s", say(s.Types), s.TypesNote, inEtcd)
	}
}
