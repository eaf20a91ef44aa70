package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// TestRestartResumesFromCheckpoint restarts a process in front of a source that has changed
// meanwhile.
func TestRestartResumesFromCheckpoint(t *testing.T) {
	for _, tc := range []struct {
		name      string
		meanwhile func(*checkpointBench)
		calls     string
		log       string // part of it
		first     uint64 // oldest version from which a watch can start; 0: the saved one
	}{{
		name:      "nothing",
		meanwhile: func(*checkpointBench) {},
		calls:     "version pods, watch pods rv=120 initial=false timeout=3, list pods rv=\"\" match=\"\" limit=1 continue",
	}, {
		name:      "changes",
		meanwhile: (*checkpointBench).change,
		calls:     "version pods, watch pods rv=120 initial=false timeout=3, list pods rv=\"\" match=\"\" limit=1 continue",
	}, {
		name: "changes elsewhere, and a source that tells it late",
		meanwhile: func(k *checkpointBench) {
			k.source.Bump(5)
			k.source.HoldBookmarks(true)
		},
		calls: "version pods, watch pods rv=120 initial=false timeout=3, list pods rv=\"\" match=\"\" limit=1 continue, version pods, watch pods rv=120 initial=false timeout=0",
	}, {
		name:      "an expired version",
		meanwhile: func(k *checkpointBench) { k.change(); k.source.Compact() },
		calls:     "version pods, watch pods rv=120 initial=false timeout=3, watch pods rv=0 initial=true timeout=0",
	}, {
		name:      "an upgrade of the upstream",
		meanwhile: func(k *checkpointBench) { k.change(); k.source.SetServer("2") },
		calls:     "version pods, watch pods rv=0 initial=true timeout=0",
	}, {
		name:      "another cluster",
		meanwhile: func(k *checkpointBench) { k.source.Bump(1000); k.is("two") },
		calls:     "list pods rv=\"\" match=\"\" limit=1, watch pods rv=0 initial=true timeout=0",
		log:       "different cluster: two, not one",
		first:     1120,
	}, {
		name: "a cluster that does not say which it is",
		meanwhile: func(k *checkpointBench) {
			k.options.Cluster = func(context.Context) (string, error) {
				return "", apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "kube-system", errors.New("no"))
			}
			k.source.Bump(1)
		},
		calls: "list pods rv=\"\" match=\"\" limit=1, watch pods rv=0 initial=true timeout=0",
		log:   "does not identify its cluster",
		first: 121,
	}, {
		name: "a restored upstream",
		meanwhile: func(k *checkpointBench) {
			k.source = cachetest.New(k.res)
			for i := range 5 {
				k.source.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("default/pod-%02d", i), ""))
			}
		},
		calls: "version pods, list pods rv=\"\" match=\"\" limit=1, watch pods rv=0 initial=true timeout=0",
		log:   "went back: from 120 to 105",
		first: 105,
	}, {
		name: "another definition",
		meanwhile: func(k *checkpointBench) {
			k.res = k.res.Reinstate(time.Time{})
			k.res.Definition = "2"
			k.source.Bump(1)
		},
		calls: "list pods rv=\"\" match=\"\" limit=1, watch pods rv=0 initial=true timeout=0",
		log:   "the resource was",
		first: 121,
	}, {
		name:      "too long a time",
		meanwhile: func(k *checkpointBench) { k.options.MaxAge = time.Hour; time.Sleep(2 * time.Hour); k.source.Bump(1) },
		calls:     "list pods rv=\"\" match=\"\" limit=1, watch pods rv=0 initial=true timeout=0",
		log:       "it is 2h0m",
		first:     121,
	}, {
		name: "a damaged image",
		meanwhile: func(k *checkpointBench) {
			f, err := k.disk.OpenReadWrite("/state/pods.v1.json.image", vfs.WriteCategoryUnspecified)
			if err != nil {
				k.t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte("xxxxx"), 200); err != nil {
				k.t.Fatal(err)
			}
			k.source.Bump(1)
		},
		calls: "list pods rv=\"\" match=\"\" limit=1, watch pods rv=0 initial=true timeout=0",
		log:   "checkpoint dropped",
		first: 121,
	}} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				k := newCheckpointBench(t)
				k.start()
				k.same(k.open())
				k.stop()
				k.source.Calls() // resets the list
				tc.meanwhile(k)
				k.start()
				defer func() { k.stop() }()
				c := k.open()
				k.same(c)
				if c.State().Phase != reflector.Synced || c.RV() < k.source.Revision() && !strings.Contains(tc.name, "late") {
					t.Errorf("%v at %d, the source at %d", c.State(), c.RV(), k.source.Revision())
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if calls := strings.Join(k.source.Calls(), ", "); !strings.HasPrefix(calls, tc.calls) {
					t.Errorf("calls %s,\nwant  %s", calls, tc.calls)
				}
				if !strings.Contains(k.log.String(), tc.log) {
					t.Errorf("log without %q: %s", tc.log, k.log.String())
				}
				first := tc.first
				if first == 0 {
					first = 120
				}
				if got := c.Mux().Oldest(); got != first {
					t.Errorf("watches can begin at %d, want %d", got, first)
				}
				k.change()
				synctest.Wait()
				k.same(c)
			})
		})
	}
}

// TestRandomRestarts kills and stops a process repeatedly while its source changes. Every state it
// serves must be one of the source, and resumed watches must miss and repeat nothing.
func TestRandomRestarts(t *testing.T) {
	for _, seed := range soak.Seeds(t, 4, 100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 9))
				k := newCheckpointBench(t)
				if seed%2 == 0 {
					k.source.NoCurrentVersion()
				}
				if seed%4 > 1 {
					k.limits.HistoryEvents = 5 // so that events do not always show what changed
				}
				for range 12 {
					k.start()
					c := k.open()
					k.same(c)
					if c.RV() < k.source.Revision() {
						t.Errorf("at %d, the source at %d", c.RV(), k.source.Revision())
					}
					for range random.IntN(6) {
						for range random.IntN(10) {
							k.change()
						}
						if random.IntN(6) == 0 {
							k.source.Compact()
							k.source.Break(nil) // causes a relist
						}
						time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond)
						synctest.Wait()
						k.same(c)
					}
					if random.IntN(3) == 0 {
						k.stop()
					} else {
						k.kill(random)
					}
					for range random.IntN(3) {
						k.change()
					}
					if random.IntN(6) == 0 {
						k.source.Compact()
					}
					if dropped := strings.Count(k.log.String(), "checkpoint dropped"); dropped > 0 {
						t.Errorf("dropped: %s", k.log.String())
					}
				}
				if loads := strings.Count(k.log.String(), "collection loaded"); loads < 5 {
					t.Errorf("loaded %d times out of 12", loads)
				}
			})
		})
	}
}

// TestUnconfirmedCheckpointIsServedOnlyIfAllowed checks that, while the source is unreachable, a
// loaded state is served only if the options allow it, with its age, and that nothing continues
// with it if the source turns out to be another cluster.
func TestUnconfirmedCheckpointIsServedOnlyIfAllowed(t *testing.T) {
	for _, tc := range []struct {
		name                   string
		serve, other, starting bool
	}{
		{name: "not wanted"}, {name: "wanted", serve: true}, {name: "another cluster", serve: true, other: true},
		{name: "one that refuses at first", serve: true, starting: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				k := newCheckpointBench(t)
				k.options.ServeUnconfirmed = func() bool { return tc.serve }
				k.start()
				k.open()
				k.stop()
				saved := time.Now()
				time.Sleep(time.Hour)
				k.change()
				k.source.SetDown(true)
				var away, starting atomic.Bool
				away.Store(true)
				starting.Store(tc.starting)
				k.options.Cluster = func(context.Context) (string, error) {
					switch {
					case away.Load():
						return "", cachetest.ErrDown
					case starting.Load():
						return "", apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "kube-system", errors.New("no"))
					case tc.other:
						return "two", nil
					}
					return "one", nil
				}
				k.start()
				defer func() { k.stop() }()
				c, err := k.manager.Collection(t.Context(), k.res, api.JSON)
				if (err == nil) != tc.serve {
					t.Fatalf("error %v", err)
				}
				if tc.serve {
					k.same(c)
					if state := c.State(); state.Phase != reflector.Stale || state.Since.After(saved) || saved.Sub(state.Since) > time.Minute || c.RV() != 120 {
						t.Errorf("at %d, %v", c.RV(), state)
					}
					if !c.Unconfirmed() || strings.Count(k.log.String(), "serving unconfirmed") != 1 {
						t.Errorf("unconfirmed: %t, log: %s", c.Unconfirmed(), k.log.String())
					}
				}
				away.Store(false)
				k.source.SetDown(false)
				time.Sleep(10 * time.Second)
				if tc.starting {
					if state := c.State(); state.Phase != reflector.Stale || !c.Unconfirmed() {
						t.Errorf("while it starts: %v", state)
					}
				}
				starting.Store(false)
				time.Sleep(time.Minute)
				synctest.Wait()
				if c != nil {
					select {
					case <-c.Closed():
						if !tc.other {
							t.Error("the loaded collection has stopped")
						}
					default:
						if tc.other {
							t.Error("the collection of another cluster has not stopped")
						}
					}
				}
				c = k.open()
				k.same(c)
				if c.State().Phase != reflector.Synced || c.Unconfirmed() || c.RV() != k.source.Revision() {
					t.Errorf("at %d, %v", c.RV(), c.State())
				}
			})
		})
	}
}

// TestUnconfirmedCheckpointIsNotFresh checks that a loaded state is not taken for the most recent
// one, whatever its version, before the cluster is identified.
func TestUnconfirmedCheckpointIsNotFresh(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		k.options.ServeUnconfirmed = func() bool { return true }
		k.start()
		k.open()
		k.stop()
		identified := make(chan struct{})
		k.options.Cluster = func(ctx context.Context) (string, error) {
			select {
			case <-identified:
				return "one", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		k.start()
		defer func() { k.stop() }()
		c := k.open()
		var ahead *store.TooLargeError
		if rv, err := c.Fresh(t.Context()); !errors.As(err, &ahead) || !c.Unconfirmed() {
			t.Errorf("at %d, unconfirmed: %t, %v", rv, c.Unconfirmed(), err)
		}
		go func() {
			time.Sleep(time.Second)
			close(identified)
		}()
		if rv, err := c.Fresh(t.Context()); err != nil || rv != k.source.Revision() || c.Unconfirmed() {
			t.Errorf("at %d, unconfirmed: %t, %v", rv, c.Unconfirmed(), err)
		}
	})
}

// TestCheckpointIsServedWhileSourceIsSlow checks that, while the source responds slowly, a loaded
// state is served after a moment if the options allow it, with its age; otherwise only once it is
// confirmed.
func TestCheckpointIsServedWhileSourceIsSlow(t *testing.T) {
	for _, tc := range []struct {
		name         string
		serve, other bool
	}{{"not wanted", false, false}, {"wanted", true, false}, {"another cluster", true, true}} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				k := newCheckpointBench(t)
				k.options.ServeUnconfirmed = func() bool { return tc.serve }
				k.start()
				k.open()
				k.stop()
				saved := time.Now()
				time.Sleep(time.Hour)
				k.change()
				const late = 20 * time.Second
				k.options.Cluster = func(ctx context.Context) (string, error) {
					select {
					case <-time.After(late / 2):
					case <-ctx.Done():
						return "", ctx.Err()
					}
					if tc.other {
						return "two", nil
					}
					return "one", nil
				}
				k.start()
				defer func() { k.stop() }()
				began := time.Now()
				c := k.open()
				took := time.Since(began)
				if !tc.serve {
					if took < late/2 || c.State().Phase != reflector.Synced || c.RV() != k.source.Revision() {
						t.Errorf("after %s at %d, %v", took, c.RV(), c.State())
					}
					return
				}
				if state := c.State(); took > 2*time.Second || state.Phase != reflector.Stale || saved.Sub(state.Since) > time.Minute || c.RV() != 120 {
					t.Errorf("after %s at %d, %v", took, c.RV(), state)
				}
				time.Sleep(late)
				synctest.Wait()
				if tc.other {
					select {
					case <-c.Closed():
					default:
						t.Error("the collection of another cluster has not stopped")
					}
				}
				c = k.open()
				k.same(c)
				if c.State().Phase != reflector.Synced || c.RV() != k.source.Revision() {
					t.Errorf("at %d, %v", c.RV(), c.State())
				}
			})
		})
	}
}

// TestCheckpointIsRemovedWithResource checks that the checkpoint of a collection is removed with
// the resource, and when it is excluded from saving.
func TestCheckpointIsRemovedWithResource(t *testing.T) {
	for _, tc := range []struct {
		name  string
		end   func(*checkpointBench)
		saved int
	}{
		{"in use", func(*checkpointBench) {}, 1},
		{"idle", func(*checkpointBench) { time.Sleep(time.Hour) }, 0},
		{"dropped", func(k *checkpointBench) { k.manager.Drop(cachetest.Pods, errors.New("redefined")) }, 0},
		{"excluded", func(k *checkpointBench) {
			k.stop()
			k.options.Exclude = func(gr schema.GroupResource) bool { return gr.Resource == "pods" }
			k.start()
			k.manager.Checkpoints(k.t.Context())
			k.open()
			time.Sleep(time.Minute)
		}, 0},
		{"of something else", func(k *checkpointBench) {
			k.stop()
			f, err := k.disk.Create("/state/x.v1.json.image", vfs.WriteCategoryUnspecified)
			if err := errors.Join(err, f.Close()); err != nil {
				k.t.Fatal(err)
			}
			k.start()
		}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				k := newCheckpointBench(t)
				k.start()
				defer func() { k.stop() }()
				k.open()
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if saved := k.manager.Checkpoints(t.Context()); len(saved) != 1 || saved[0] != (checkpoint.Saved{Resource: cachetest.Pods, Encoding: api.JSON}) {
					t.Fatalf("checkpoints %v", saved)
				}
				tc.end(k)
				synctest.Wait()
				if saved := k.manager.Checkpoints(t.Context()); len(saved) != tc.saved {
					t.Errorf("checkpoints %v, want %d", saved, tc.saved)
				}
			})
		})
	}
}
