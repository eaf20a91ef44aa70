package faults

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/proxy/upstream"
	"github.com/kubeweir/kubeweir/test/link"
)

var (
	uplinkPods = flag.Int("faults.uplink.pods", 300, "how many pods TestColdStartOverSlowUplink has")
	uplinkRate = flag.Int("faults.uplink.rate", 400_000, "bits a second that its uplink carries")
)

// TestColdStartOverSlowUplink checks that the cache is filled in compressed pages over a slow
// uplink. A streaming list is not compressed: it would take many times as long, which is hours for
// a large cluster.
func TestColdStartOverSlowUplink(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	makePods(t, "faults-uplink", *uplinkPods)
	l := startLink(t, bed.Kube)
	must(t, l.Set(link.Condition{Rate: *uplinkRate / 8}))
	cfg := bed.Kube.AdminConfig()
	cfg.Host = l.URL()
	client, err := upstream.New(upstream.Options{Config: cfg, Compress: true})
	must(t, err)
	defer client.Close()
	m, err := cache.NewManager(cache.Options{Source: client.Source()})
	must(t, err)
	defer m.Close()
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	resource := &source.Resource{GroupVersionResource: pods, Kind: "Pod", Namespaced: true, Schema: object.SchemaFor(pods)}
	began := time.Now()
	c, err := m.Collection(ctx, resource, api.JSON)
	must(t, err)
	took := time.Since(began)
	if n := c.Snapshot().Len(); n != *uplinkPods {
		t.Errorf("the cache holds %d pods, want %d", n, *uplinkPods)
	}
	raw, carried := m.Status()[0].Bytes, l.Carried()
	t.Logf("%d pods of %d KB in %s: %d KB over %d kbit/s", *uplinkPods, raw>>10, took.Round(time.Second), carried>>10, *uplinkRate/1000)
	if carried > raw/2 {
		t.Errorf("the link carried %d bytes for %d bytes of pods", carried, raw)
	}
}

// makePods creates pods that take about 6 KB each in kube-apiserver's responses.
func makePods(t *testing.T, namespace string, n int) {
	t.Helper()
	w := &writer{kube: bed.Kube, client: trusting(t, bed.Kube)}
	must(t, w.send(t.Context(), http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`))
	var env []string
	for i := range 25 {
		env = append(env, fmt.Sprintf(`{"name":"SETTING_NUMBER_%d","value":"https://service-%d.example.com:8443/path"}`, i, i))
	}
	var writing sync.WaitGroup
	const writers = 8
	for first := range writers {
		writing.Go(func() {
			for i := first; i < n; i += writers {
				body := fmt.Sprintf(`{"metadata":{"name":"pod-%05d","labels":{"app":"app-%d","pod-template-hash":"%08x"}},`+
					`"spec":{"nodeName":"node-%d","containers":[{"name":"main","image":"registry.example.com/app-%d:v1.%d","env":[%s]}]}}`,
					i, i%50, i*2654435761, i%500, i%50, i%7, strings.Join(env, ","))
				if err := w.send(t.Context(), http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", body); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
}
