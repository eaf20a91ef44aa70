package console

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestStoreTypes: the store counts the objects of types, from time to time.
func TestStoreTypes(t *testing.T) {
	want := []StoreType{{Group: "example.com", Resource: "leases", Objects: 3}, {Resource: "pods", Objects: 2}}
	counted := 0
	c := open(t, func(o *Options) {
		serving(clusterOf("", &handler{}))(o)
		o.Mode, o.Types = Standalone, func() []StoreType { counted++; return want }
	})
	for range 2 {
		if s := read[Store](t, c, "/console/api/store"); !slices.Equal(s.Types, want) || s.Engine != "embedded" {
			t.Errorf("%+v", s)
		}
	}
	if counted != 1 {
		t.Errorf("counted %d times", counted)
	}
	etcd := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubeweir_etcd_available"})
	etcd.Set(1)
	process := prometheus.NewRegistry()
	process.MustRegister(etcd)
	c = open(t, func(o *Options) {
		serving(clusterOf("", &handler{}))(o)
		o.Mode, o.Process = Standalone, process
	})
	if s := read[Store](t, c, "/console/api/store"); s.Types == nil || len(s.Types) > 0 || !s.Available || s.Engine != "etcd" {
		t.Errorf("%+v", s)
	}
}
