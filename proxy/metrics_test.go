package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/route"
)

// podsOnly knows pods.
func podsOnly(gvr schema.GroupVersionResource) (schema.GroupResource, bool) {
	return cachetest.Pods.GroupResource(), gvr == cachetest.Pods
}

func counted(m *metrics, method, path string, code int) {
	x := &exchange{Facts: route.Facts{Info: (&api.Request{Method: method, Path: path}).Info()}, source: response.FromGateway}
	m.observe(x, code, 1)
}

func TestMetricsHaveNoLabelsThatClientsMakeUp(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newMetrics(registry, podsOnly)
	for i := range 100 {
		counted(m, "GET", fmt.Sprintf("/apis/group%d.example.com/v1/things", i), 401)
		counted(m, "GET", fmt.Sprintf("/api/v1/kind%d", i), 403)
		counted(m, fmt.Sprintf("VERB%d", i), "/version", 401)
		counted(m, fmt.Sprintf("VERB%d", i), "/api/v1/pods", 401)
		counted(m, "GET", "/api/v1/\xff"+fmt.Sprint(i), 401)
		counted(m, "\xff", "/\xff", 401)
		counted(m, "GET", fmt.Sprintf("/api/v1/namespaces/default/pods/p%d", i), 200)
		counted(m, "GET", "/api/v1/namespaces/default/pods/p/proxy", 700+i)
	}
	if n := len(m.children); n > 9 {
		t.Errorf("%d label sets", n)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			for _, l := range metric.GetLabel() {
				switch l.GetName() {
				case "group", "resource":
					if v := l.GetValue(); v != "" && v != "pods" {
						t.Errorf("%s: label %s=%q", f.GetName(), l.GetName(), v)
					}
				case "verb":
					if strings.ToLower(l.GetValue()) != l.GetValue() || strings.HasPrefix(l.GetValue(), "verb") {
						t.Errorf("%s: label verb=%q", f.GetName(), l.GetValue())
					}
				}
			}
		}
	}
}

func TestMetricsStayBounded(t *testing.T) {
	m := newMetrics(nil, func(gvr schema.GroupVersionResource) (schema.GroupResource, bool) { return gvr.GroupResource(), true })
	for i := range 2 * maxLabelSets {
		counted(m, "GET", fmt.Sprintf("/api/v1/kind%d", i), 200)
	}
	if n := len(m.children); n > maxLabelSets+1 {
		t.Errorf("%d label sets", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	m := newMetrics(nil, podsOnly)
	x := &exchange{Facts: route.Facts{Info: (&api.Request{Method: "GET", Path: "/api/v1/pods"}).Info()}, source: response.FromCache}
	for b.Loop() {
		m.observe(x, 200, 1)
	}
}
