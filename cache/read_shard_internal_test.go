package cache

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kubeweir/kubeweir/object"
)

// TestRemainingOfShardInTheStore compares the count of a page that upstream reads from its store with its way of reading
// (k8s.io/apiserver/pkg/storage/etcd3, GetList).
func TestRemainingOfShardInTheStore(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n, limit, in := 1+random.IntN(400), 1+random.IntN(30), 1+random.IntN(12)
		tree := newTree(byKey)
		keys, matches := make([]string, n), make([]bool, n)
		for i := range n {
			keys[i], matches[i] = fmt.Sprintf("ns/%05d", i), random.IntN(in) == 0
			tree.Set(&object.Object{Key: keys[i]})
		}
		// The store's way: batches, which double while the page is not full.
		page, last, count, size, more := 0, 0, 0, limit, true
		for from := 0; more && page < limit; size *= 2 {
			count = n - from
			batch := min(size, count)
			more = batch < count
			for i := from; i < from+batch; i++ {
				if page == limit {
					more = true
					break
				}
				last = i
				if matches[i] {
					page++
				}
			}
			from += batch
		}
		if !more || page < limit {
			continue // no token, no count
		}
		q := &query{namespace: "ns", storeOnly: true}
		s := &selection{view: &View{tree: tree}, limit: limit}
		if got, want := *q.remainingOfShard(s, keys[last]), int64(count-limit); got != want {
			t.Fatalf("%d objects, limit %d: %d remain, want %d", n, limit, got, want)
		}
	}
}
