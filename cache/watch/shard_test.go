package watch_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/shard"
)

// TestWatchOfShard checks the initial objects and the changes of a shard, and the bookmark between
// them.
func TestWatchOfShard(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		random := rand.New(rand.NewPCG(1, 2))
		const parts = 8 // few of all objects, so an index pays
		var want [parts][]string
		create := func(key string) (of int, rv string) {
			o := b.source.Create(cachetest.Pods, withUID(cachetest.Pod(key, ""), random))
			synctest.Wait()
			return int(shard.Hash(string(o.GetUID())) >> 61), o.GetResourceVersion()
		}
		for i := range 400 { // enough for an index
			of, rv := create(fmt.Sprintf("default/p%04d", i))
			want[of] = append(want[of], fmt.Sprintf("ADDED default/p%04d@%s", i, rv))
		}
		var watches [parts][2]*openWatch
		for round := range 2 { // the second round with an index
			for of := range parts {
				watches[of][round] = b.watch(initial+"&shardSelector="+url.QueryEscape(cachetest.ShardOf("uid", uint64(of), parts)), api.Representation{})
				defer watches[of][round].stop()
				expect(t, watches[of][round].lines(t), append(want[of], fmt.Sprintf("BOOKMARK end@%d", b.c.RV()))...)
			}
		}
		if n := cachetest.Status(b.manager, b.c).Indexes; n != 1 {
			t.Errorf("%d indexes", n)
		}
		for i := range 20 {
			key := fmt.Sprintf("default/q%d", i)
			of, rv := create(key)
			b.update(key)
			gone := b.source.Delete(cachetest.Pods, key).GetResourceVersion()
			for round := range 2 {
				expect(t, watches[of][round].lines(t), "ADDED "+key+"@"+rv, fmt.Sprintf("MODIFIED %s@%d", key, b.c.RV()-1), "DELETED "+key+"@"+gone)
				expect(t, watches[(of+1)%parts][round].lines(t))
			}
		}
		// Another object with the same name is in another shard: it leaves one and enters the
		// other.
		of, _ := create("default/r")
		next := of
		for next == of {
			b.source.Delete(cachetest.Pods, "default/r")
			next, _ = create("default/r")
		}
		for _, i := range []int{of, next} {
			lines := watches[i][0].lines(t)
			if len(lines) == 0 || strings.HasPrefix(lines[len(lines)-1], "ADDED") != (i != of) {
				t.Errorf("shard %d, previously in %d: %v", i, of, lines)
			}
		}
	})
}

// withUID gives a pod a random uid.
func withUID(pod *corev1.Pod, random *rand.Rand) *corev1.Pod {
	pod.UID = types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", random.Uint32(), random.Uint64()&(1<<48-1)))
	return pod
}
