package matrix

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"testing"

	"github.com/kubeweir/kubeweir/test/conformance"
)

// shardsEach is the number of shards of each resource.
const shardsEach = 8

// shards reads each resource in shards, as the replicas of kube-state-metrics do. The shards come
// from the cache even if the cluster does not support sharding. Together they must equal the list
// of kube-apiserver: each object once, in the same bytes.
func (c *column) shards(ctx context.Context, t *testing.T, before tally) {
	for _, r := range resources {
		for _, query := range []string{"resourceVersion=0", ""} {
			t.Run(fmt.Sprintf("shards/%s/%s", r.name, query), func(t *testing.T) {
				whole := items(ctx, t, c, c.oracle, r.all()+"?"+query)
				var parts []string
				for i := range shardsEach {
					end := fmt.Sprintf("0x%x000000000000000", 2*i+2) // the last one is 2^64
					part := fmt.Sprintf("shardRange(object.metadata.uid, '0x%x000000000000000', '%s')", 2*i, end)
					parts = append(parts, items(ctx, t, c, c.target, r.all()+"?"+query+"&shardSelector="+url.QueryEscape(part))...)
				}
				slices.Sort(whole)
				slices.Sort(parts)
				if len(whole) < objectsEach || !slices.Equal(whole, parts) {
					t.Errorf("%d objects in %d shards, want %d", len(parts), shardsEach, len(whole))
				}
			})
		}
	}
	after := c.count(ctx, t, before)
	if !maps.Equal(before.forwarded, after.forwarded) {
		t.Errorf("shards were forwarded: %v, before: %v", after.forwarded, before.forwarded)
	}
	for source, n := range after.sources {
		if source != "cached" && n > before.sources[source] {
			t.Errorf("responses to shards were %s", source)
		}
	}
}

// items returns the objects of a list in their original bytes.
func items(ctx context.Context, t *testing.T, c *column, server *conformance.Target, path string) []string {
	t.Helper()
	resp, err := server.Send(ctx, conformance.Request{Path: path, Accept: json}, c.env.Users["admin"])
	must(t, err)
	var list struct{ Items []stdjson.RawMessage }
	if err := stdjson.Unmarshal(resp.Body, &list); err != nil || resp.Status != 200 {
		t.Fatalf("%s: %d %v %.300s", path, resp.Status, err, resp.Body)
	}
	var out []string
	for _, item := range list.Items {
		out = append(out, string(item))
	}
	return out
}
