package selfcheck_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/selfcheck"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// TestCheckFindsDifferences injects each kind of fault into a watch.
func TestCheckFindsDifferences(t *testing.T) {
	is := func(kind api.EventType) func(*source.Event) bool {
		return func(ev *source.Event) bool { return ev.Type != kind }
	}
	const key = "ns-1/pod-001" // created at version 102
	for _, c := range []struct {
		name  string
		fault func(*source.Event) bool
		write func(s *faultySource)
		want  string
	}{
		{"an object is lost", is(api.Added), func(s *faultySource) {
			s.Create(cachetest.Pods, cachetest.Pod("ns-1/new", ""))
		}, "differs, 6 objects, 0 sampled; missing ns-1/new 0 106"},
		{"an object is extra", is(api.Deleted), func(s *faultySource) {
			s.Delete(cachetest.Pods, key)
		}, "differs, 4 objects, 0 sampled; extra ns-1/pod-001 102 0"},
		{"an object is old", is(api.Modified), func(s *faultySource) {
			s.Update(cachetest.Pods, cachetest.Pod(key, "", "color=brown"))
		}, "differs, 5 objects, 0 sampled; version ns-1/pod-001 102 106"},
		{"a byte is another", func(ev *source.Event) bool {
			ev.Object = bytes.Replace(ev.Object, []byte("brown"), []byte("crown"), 1)
			return true
		}, func(s *faultySource) {
			s.Update(cachetest.Pods, cachetest.Pod(key, "", "color=brown"))
		}, "differs, 5 objects, 5 sampled; bytes ns-1/pod-001 106 106"},
	} {
		for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
			t.Run(c.name+" in "+enc.String(), func(t *testing.T) {
				checkBench(t, 5, cache.Options{}, func(t *testing.T, s *faultySource, m *cache.Manager) {
					held := cachetest.Collection(t, m, cachetest.PodResource(), enc)
					synctest.Wait()
					if got := describe(checkPods(t, m)); got != "same, 5 objects, 5 sampled" {
						t.Fatalf("before the fault: %s", got)
					}
					s.watched = c.fault
					c.write(s)
					synctest.Wait()
					s.watched = nil
					s.Bump(5)
					if got := describe(checkPods(t, m)); got != c.want {
						t.Errorf("found %q, want %q", got, c.want)
					}
					<-held.Closed()
					if reason := held.State().Err; reason != store.ErrDiffers {
						t.Errorf("the collection stopped because of %v", reason)
					}
					synctest.Wait()
					if got := checkPods(t, m); got.Result != selfcheck.Same || got.Sampled == 0 {
						t.Errorf("relisted: %s", describe(got))
					}
				})
			})
		}
	}
}

// TestCheckDoesNotWaitForBookmark checks that the result for an idle resource does not wait for a
// bookmark.
func TestCheckDoesNotWaitForBookmark(t *testing.T) {
	checkBench(t, 5, cache.Options{}, func(t *testing.T, s *faultySource, m *cache.Manager) {
		cachetest.PodCollection(t, m)
		synctest.Wait()
		s.watched = func(*source.Event) bool { return false }
		s.Delete(cachetest.Pods, "ns-1/pod-001")
		synctest.Wait()
		s.watched = nil
		s.Create(cachetest.Pods, cachetest.Pod("ns-1/other", ""))
		synctest.Wait()
		s.Bump(5)
		began := time.Now()
		if got := checkPods(t, m); got.Result != selfcheck.Differs {
			t.Error(describe(got))
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// TestCheckRestartsSilentWatch checks that a watch that silently delivers nothing is restarted.
func TestCheckRestartsSilentWatch(t *testing.T) {
	checkBench(t, 5, cache.Options{}, func(t *testing.T, s *faultySource, m *cache.Manager) {
		c := cachetest.PodCollection(t, m)
		synctest.Wait()
		s.Hold()
		s.Delete(cachetest.Pods, "ns-1/pod-001")
		began := time.Now()
		if got := describe(checkPods(t, m)); got != "same, 4 objects, 4 sampled" {
			t.Errorf("a hanging watch: %s", got)
		}
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("took %s", took)
		}
		if c != cachetest.PodCollection(t, m) || c.Snapshot().Len() != 4 {
			t.Errorf("%d pods are held, by another collection: %t", c.Snapshot().Len(), c != cachetest.PodCollection(t, m))
		}
	})
}

// TestCheckHasNoFalsePositives checks that an honest watch is never reported as a difference.
func TestCheckHasNoFalsePositives(t *testing.T) {
	seed, rounds := soak.Seed(t), soak.Cases(60, 1000)
	checkBench(t, 30, cache.Options{}, func(t *testing.T, s *faultySource, m *cache.Manager) {
		s.page = 7
		cachetest.PodCollection(t, m)
		for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
			cachetest.Collection(t, m, cachetest.PodResource(), enc)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var disturbing sync.WaitGroup
		disturbing.Go(func() { disturb(ctx, rand.New(rand.NewPCG(seed, 1)), s) })
		results := map[string]int{}
		for range rounds {
			for _, c := range m.Check(ctx, everyResource) {
				results[c.Result.String()]++
				if c.Result == selfcheck.Differs {
					t.Error(describe(c))
				}
			}
			time.Sleep(time.Second)
		}
		cancel()
		disturbing.Wait()
		t.Logf("%v", results)
		if results["same"] < rounds*2/3 {
			t.Error("too few were compared")
		}
	})
}

// disturb writes objects and makes the source fail until ctx ends.
func disturb(ctx context.Context, r *rand.Rand, s *faultySource) {
	fresh := 0
	for ctx.Err() == nil {
		objs := s.Objects(cachetest.Pods)
		some := objs[r.IntN(len(objs))]
		key := some.GetNamespace() + "/" + some.GetName()
		switch n := r.IntN(100); {
		case n < 50:
			s.Update(cachetest.Pods, cachetest.Pod(key, "", fmt.Sprintf("color=c%d", r.IntN(1000))))
		case n < 65 && len(objs) > 12:
			s.Delete(cachetest.Pods, key)
		case n < 68 && len(objs) > 14:
			s.DeleteTogether(cachetest.Pods, key, objs[(slicesIndex(objs, some)+1)%len(objs)].GetNamespace()+"/"+objs[(slicesIndex(objs, some)+1)%len(objs)].GetName())
		case n < 90:
			fresh++
			s.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("ns-%d/new-%d", r.IntN(3), fresh), ""))
		case n < 92:
			s.Compact()
		case n < 94:
			s.Break(nil)
		case n < 95:
			s.Break(api.NewExpiredWatch(1, 2))
		case n < 96:
			s.Fail("references", apierrors.NewResourceExpired("in the middle"))
		case n < 98:
			s.HoldAfter(r.IntN(3))
			time.Sleep(time.Duration(r.IntN(int(3 * time.Second))))
			s.Release()
		default:
			s.Bump(3)
		}
		time.Sleep(time.Duration(r.IntN(int(400 * time.Millisecond))))
	}
}

func slicesIndex(objs []cachetest.Object, o cachetest.Object) int {
	for i := range objs {
		if objs[i] == o {
			return i
		}
	}
	return 0
}

// TestCheckIgnoresReencodedBytes checks that bytes sent by another program, or not repeated by the
// upstream, are no difference.
func TestCheckIgnoresReencodedBytes(t *testing.T) {
	var n atomic.Int64
	for name, prepare := range map[string]func(s *faultySource){
		"another program": func(s *faultySource) {
			s.SetServer("2")
			s.listed = func(item []byte) []byte { return bytes.Replace(item, []byte("green"), []byte("grown"), 1) }
		},
		"not repeated": func(s *faultySource) {
			s.listed = func(item []byte) []byte {
				return bytes.Replace(item, []byte("green"), fmt.Appendf(nil, "%05d", n.Add(1)), 1)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkBench(t, 5, cache.Options{}, func(t *testing.T, s *faultySource, m *cache.Manager) {
				cachetest.PodCollection(t, m)
				prepare(s)
				if got := describe(checkPods(t, m)); got != "same, 5 objects, 0 sampled" {
					t.Error(got)
				}
			})
		})
	}
}

// pagedSource lists in pages of two objects.
type pagedSource struct{ *cachetest.Source }

func (s pagedSource) List(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.ListOptions, visit func([]byte) error) (source.ListMeta, error) {
	opts.Limit = min(opts.Limit, 2)
	return s.Source.List(ctx, res, enc, opts, visit)
}

// TestCheckWithoutVersionLists checks that objects are listed if the source has no lists of
// versions.
func TestCheckWithoutVersionLists(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := cachetest.New(cachetest.PodResource())
		m := cachetest.NewManager(t, pagedSource{s}, cache.Limits{})
		defer m.Close()
		for i := range 20 {
			s.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("a/%d", i), ""))
		}
		cachetest.PodCollection(t, m)
		if got := describe(checkPods(t, m)); got != "same, 20 objects, 10 sampled" {
			t.Error(got)
		}
	})
}

// TestCheckOfUnreachableSourceIsUnfinished checks that an unreachable upstream is no difference.
func TestCheckOfUnreachableSourceIsUnfinished(t *testing.T) {
	checkBench(t, 5, cache.Options{}, func(t *testing.T, s *faultySource, m *cache.Manager) {
		cachetest.PodCollection(t, m)
		for range 3 {
			s.Fail("references", apierrors.NewResourceExpired("again"))
		}
		if got := checkPods(t, m); got.Result != selfcheck.Unfinished || !apierrors.IsResourceExpired(got.Err) {
			t.Errorf("lists expire: %s", describe(got))
		}
		s.SetDown(true)
		if got := checkPods(t, m); got.Result != selfcheck.Unfinished {
			t.Errorf("just down: %s", describe(got))
		}
		time.Sleep(time.Minute)
		if got := describe(checkPods(t, m)); !strings.HasPrefix(got, "unfinished, 0 objects, 0 sampled; the collection is stale: the upstream is unreachable") {
			t.Errorf("down for long: %s", got)
		}
	})
}

// TestCheckRunsOncePerPeriod checks that each collection is compared once per period, one at a
// time.
func TestCheckRunsOncePerPeriod(t *testing.T) {
	checkBench(t, 5, cache.Options{CheckPeriod: 5 * time.Minute}, func(t *testing.T, s *faultySource, m *cache.Manager) {
		for _, res := range []*source.Resource{cachetest.PodResource(), cachetest.NodeResource(), cachetest.WidgetResource()} {
			cachetest.Collection(t, m, res, api.JSON)
		}
		s.Calls()
		time.Sleep(time.Hour)
		requested := map[string]int{}
		for _, call := range s.Calls() {
			if strings.HasPrefix(call, "references") {
				requested[strings.Fields(call)[1]]++
			}
		}
		for _, resource := range []string{"pods", "nodes", "widgets"} {
			if n := requested[resource]; n < 8 || n > 16 {
				t.Errorf("%s were checked %d times in an hour, of %v", resource, n, requested)
			}
		}
	})
}

// TestCheckRepairsDifferences checks that a fault is found and repaired without help.
func TestCheckRepairsDifferences(t *testing.T) {
	checkBench(t, 5, cache.Options{CheckPeriod: 5 * time.Minute}, func(t *testing.T, s *faultySource, m *cache.Manager) {
		c := cachetest.PodCollection(t, m)
		synctest.Wait()
		s.watched = func(*source.Event) bool { return false }
		s.Delete(cachetest.Pods, "ns-1/pod-001")
		synctest.Wait()
		s.watched = nil
		s.Create(cachetest.Pods, cachetest.Pod("ns-1/other", ""))
		time.Sleep(10 * time.Minute)
		if now := cachetest.PodCollection(t, m); c == now || now.Snapshot().Get("ns-1/pod-001") != nil {
			t.Error("the deleted object still exists")
		}
	})
}
