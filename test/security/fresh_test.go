package security

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A watch that begins with the most recent state, as informers' do, is answered from the cache, and not after the second
// that a probe by another watch takes, whatever was written to other resources.
func TestMostRecentWatchesWaitForNoProbe(t *testing.T) {
	const rounds = 5
	ctx := deadline(t, time.Minute)
	g := startGateway(t)
	create := func(path, body string) {
		if a := do(ctx, t, kube.URL(), kube.AdminToken(), "POST", path, body); a.status != 201 {
			t.Fatal(a)
		}
	}
	ns := fmt.Sprintf("most-recent-%x", time.Now().UnixNano())
	create("/api/v1/namespaces", `{"metadata":{"name":"`+ns+`"}}`)
	create("/api/v1/namespaces/"+ns+"/configmaps", `{"metadata":{"name":"quiet"}}`)
	path := "/api/v1/namespaces/" + ns + "/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	for range rounds {
		create("/api/v1/namespaces/"+ns+"/secrets", `{"metadata":{"generateName":"other-"}}`)
		before, _ := watch(ctx, t, g, path).until(ctx, t, "")
		if len(before) != 1 || !strings.HasPrefix(before[0], "ADDED quiet@") {
			t.Errorf("initial events %v", before)
		}
	}
	m, err := g.Metrics(ctx)
	must(t, err)
	count := func(way string) float64 {
		return m.Sum("kubeweir_cache_fresh_rounds_total", map[string]string{"resource": "configmaps", "way": way})
	}
	// The first may have begun with the list that filled the cache.
	if n := count("held") + count("fed") + count("listed"); n < rounds-1 || count("probed")+count("failed") > 0 {
		t.Errorf("%v proofs at once, %v by a probe, %v failed; %d watches", n, count("probed"), count("failed"), rounds)
	}
}
