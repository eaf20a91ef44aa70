package conformance

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestShards compares shards with a kube-apiserver that supports them, and then disables the
// support: the gateway still serves shards from its cache and rejects the requests that it would
// have to forward.
func TestShards(t *testing.T) {
	t.Parallel()
	gates := map[string]bool{"ShardedListAndWatch": true}
	o := startOracle(t, realkube.Options{FeatureGates: gates})
	g := startGateway(t, o)
	ctx, oracle, gateway := t.Context(), target(t, o.Target, false), gatewayTarget(t, o, g, false)
	warm := func() {
		if err := Warm(ctx, o.Env, gateway, must(t, o.Resources)); err != nil {
			t.Fatal(err)
		}
	}
	warm()
	do(t, o.Seed)
	warm()
	do(t, o.Change)
	if _, err := Settle(ctx, o.Env, oracle, gateway, must(t, o.Resources)); err != nil {
		t.Fatal(err)
	}
	cases := near(shardCases(o.Env))
	before := responded(t, g, "cached")
	RunReads(ctx, t, o.Env, oracle, gateway, cases)
	if n := responded(t, g, "cached") - before; n < 60 {
		t.Errorf("only %v lists of %d cases were served from the cache", n, len(cases))
	}

	gates["ShardedListAndWatch"] = false
	do(t, o.Cluster.StopAPIServer)
	do(t, o.Cluster.StartAPIServer)
	send := func(method, path string) Response {
		t.Helper()
		r, err := gateway.Send(ctx, Request{Method: method, Path: path}, o.Env.Users[admin])
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	count := func(query string) int {
		t.Helper()
		r := send("GET", allPods+"?"+query)
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal(r.Body, &list); err != nil || r.Status != http.StatusOK || forwarded(r) {
			t.Fatalf("%s: %d, forwarded %v: %.300s", query, r.Status, forwarded(r), r.Body)
		}
		return len(list.Items)
	}
	t.Run("shard/before a server that does not know them", func(t *testing.T) {
		for _, version := range []string{"resourceVersion=0&", ""} {
			all, low, high := count(version+shardOf("uid", 0, 16)), count(version+shardOf("uid", 0, 8)), count(version+shardOf("uid", 8, 16))
			if all != 2*podsPerApp-2 || low == 0 || high == 0 || low+high != all {
				t.Errorf("%s: the two shards have %d and %d of %d pods", version, low, high, all)
			}
		}
		for _, rejected := range []string{"DELETE " + podsPath + "?", "GET " + podsPath + "?x=y&", "GET " + podsPath + "?limit=abc&"} {
			method, path, _ := strings.Cut(rejected, " ")
			if r := send(method, path+shardOf("uid", 0, 8)); r.Status != http.StatusBadRequest || strings.Contains(string(r.Body), "items") {
				t.Errorf("%s: %d %.300s", rejected, r.Status, r.Body)
			}
		}
		if n := count("resourceVersion=0"); n != 2*podsPerApp-2 {
			t.Errorf("%d pods are left after the rejected delete", n)
		}
	})
}
