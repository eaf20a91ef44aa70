package security

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestCostlySelectorsDelayNobodyElse checks that watches with selectors of very many terms, over an
// object with very many labels, do not delay other watches of the same resource.
func TestCostlySelectorsDelayNobodyElse(t *testing.T) {
	ctx := deadline(t, time.Minute)
	g := startGateway(t)
	const labels, changes = 10000, 5
	create := func(path, body string) {
		t.Helper()
		if a := do(ctx, t, kube.URL(), kube.AdminToken(), "POST", path, body); a.status != 201 {
			t.Fatal(a)
		}
	}
	large := func(n int) string {
		set := make([]string, labels)
		for i := range set {
			set[i] = fmt.Sprintf(`"k%06d":"x"`, i)
		}
		return fmt.Sprintf(`{"metadata":{"name":"large","labels":{%s}},"data":{"n":"%d"}}`, strings.Join(set, ","), n)
	}
	selector := func(terms int) string {
		set := make([]string, terms)
		for i := range set {
			set[i] = fmt.Sprintf("!q%06d", i) // as long as the object's keys, but never present
		}
		return strings.Join(set, ",")
	}
	for _, ns := range []string{"costly", "cheap"} {
		create("/api/v1/namespaces", `{"metadata":{"name":"`+ns+`"}}`)
	}
	create("/api/v1/namespaces/costly/configmaps", large(0))
	var attackers []watched
	for _, terms := range []int{100, 5000} {
		for range 15 {
			attackers = append(attackers, watch(ctx, t, g, "/api/v1/namespaces/costly/configmaps?watch=1&resourceVersion=0&labelSelector="+selector(terms)))
		}
	}
	// The gateway once matched each event for each of these watches under a common lock, which took
	// seconds per event.
	bystander := watch(ctx, t, g, "/api/v1/namespaces/cheap/configmaps?watch=1&resourceVersion=0")
	for i := range changes {
		if a := do(ctx, t, kube.URL(), kube.AdminToken(), "PUT", "/api/v1/namespaces/costly/configmaps/large", large(i+1)); a.status != 200 {
			t.Fatal(a)
		}
		name := fmt.Sprintf("seen-%d", i)
		create("/api/v1/namespaces/cheap/configmaps", `{"metadata":{"name":"`+name+`"}}`)
		began := time.Now()
		bystander.until(ctx, t, name)
		t.Logf("change %d was seen after %s", i, time.Since(began))
	}
	for _, w := range attackers { // these watches receive the events, too
		for seen := 0; seen < changes; seen++ {
			w.until(ctx, t, "large")
		}
	}
}
