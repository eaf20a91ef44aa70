package security

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestMostRecentWatchesWaitForNoProbe checks that a watch that starts with the most recent state,
// as informers open it, is served from the cache at once, whatever other resources were written. It
// must not wait for a freshness check by a probing watch, which takes up to a second.
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
	// The first watch may have started with the list that filled the cache.
	if n := count("held") + count("fed") + count("listed"); n < rounds-1 || count("probed")+count("failed") > 0 {
		t.Errorf("%v immediate freshness checks, %v by a probe, %v failed; %d watches", n, count("probed"), count("failed"), rounds)
	}
}
