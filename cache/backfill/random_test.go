package backfill_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/watchmux"
)

// randomBench makes random changes and knows what a watch must deliver.
type randomBench struct {
	*bench
	rng    *rand.Rand
	shared map[uint64]bool // versions of several changes
}

func (b *randomBench) pod(key string) cachetest.Object {
	var labels []string
	if n := b.rng.IntN(3); n > 0 {
		labels = append(labels, []string{"app=x", "app=y"}[n-1])
	}
	return cachetest.Pod(key, fmt.Sprintf("node-%d", b.rng.IntN(2)), labels...)
}

func (b *randomBench) write() {
	key := fmt.Sprintf("ns-%d/pod-%d", b.rng.IntN(2), b.rng.IntN(12))
	live := map[string]bool{}
	var keys []string
	for _, o := range b.Objects(cachetest.Pods) {
		k := o.GetNamespace() + "/" + o.GetName()
		live[k] = true
		keys = append(keys, k)
	}
	switch n := b.rng.IntN(20); {
	case n == 0:
		b.Bump(1 + b.rng.Uint64N(3))
	case !live[key]:
		b.Create(cachetest.Pods, b.pod(key))
	case n < 4 && len(keys) > 3:
		b.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		b.remove(keys[:2]...)
		b.shared[b.Revision()] = true
	case n < 8:
		b.remove(key)
	default:
		b.Update(cachetest.Pods, b.pod(key))
	}
}

// someFilter returns any filter, or nil.
func (b *randomBench) someFilter() *object.Filter {
	pick := func(values ...string) string { return values[b.rng.IntN(len(values))] }
	return cachetest.Filter(b.t, b.res, pick("", "", "ns-0"), pick("", "", "app=x", "app!=x", "app"),
		pick("", "", "spec.nodeName=node-0", "metadata.name=pod-3"))
}

// truth returns what kube-apiserver sends to a watch: an object that enters the filter is added, one
// that leaves it is deleted.
func (b *randomBench) truth(from uint64, f *object.Filter) string {
	prev := map[string]*object.Object{}
	var out []string
	for _, c := range b.History(cachetest.Pods) {
		o, err := b.res.Schema.Decode(api.JSON, cachetest.Encode(c.Object, api.JSON))
		if err != nil {
			b.t.Fatal(err)
		}
		before := prev[c.Key] != nil && f.Matches(prev[c.Key])
		after := c.Type != api.Deleted && f.Matches(o)
		if prev[c.Key] = o; c.Type == api.Deleted {
			delete(prev, c.Key)
		}
		kind := api.Modified
		switch {
		case c.RV <= from || !before && !after:
			continue
		case !before:
			kind = api.Added
		case !after:
			kind = api.Deleted
		}
		out = append(out, fmt.Sprintf("%s %s@%d", kind, c.Key, c.RV))
	}
	return strings.Join(out, " ")
}

// check starts a watch somewhere, and others beside it.
func (b *randomBench) check(compacted uint64) (served bool) {
	first := uint64(100)
	from := first + b.rng.Uint64N(b.Revision()-first)
	for b.shared[from] {
		from--
	}
	f := b.someFilter()
	for range b.rng.IntN(3) {
		other := first + b.rng.Uint64N(b.Revision()-first)
		filter := b.someFilter()
		c := b.c // a restart replaces it
		go func() { _ = c.Backfill(b.t.Context(), other, filter) }()
	}
	var trimmed *watchmux.ExpiredError
	switch got, err := b.watch(b.t.Context(), from, f); {
	case err == nil:
		synctest.Wait()
		if want := b.truth(from, f); got != want {
			b.t.Fatalf("from %d with %+v, history from %d to %d of %d:\n%s\nwant\n%s", from, f, b.c.Mux().Oldest(), b.c.RV(), b.Revision(), got, want)
		}
		return true
	case from < compacted: // 410, or no previous states
	case errors.Is(err, watchmux.ErrNoRoom), errors.As(err, &trimmed):
	case strings.Contains(err.Error(), "at the beginning of the history is not known"):
	default:
		b.t.Fatalf("from %d, compacted at %d: %v", from, compacted, err)
	}
	return false
}

// TestRandom checks that a watch that starts at any version with any filter gets exactly the events
// that it must get, while the history is extended, trimmed, and loses its state, and the source
// compacts its own.
func TestRandom(t *testing.T) {
	for _, seed := range soak.Seeds(t, 6, 300) {
		limits := cache.Limits{HistoryAge: time.Minute, HistoryEvents: 60 + int(seed%4)*60}
		past := func(b *bench) {
			b.wrapped = b.Source
		}
		withBench(t, limits, past, func(t *testing.T, inner *bench) {
			b := &randomBench{bench: inner, rng: rand.New(rand.NewPCG(seed, 0)), shared: map[uint64]bool{}}
			served, compacted := 0, uint64(0)
			for range 40 {
				b.write()
			}
			b.manager.Close()
			b.restart(limits)
			for i := range 150 {
				switch n := b.rng.IntN(12); {
				case n == 0:
					time.Sleep(time.Duration(b.rng.IntN(60)) * time.Second)
				case n == 1 && i%5 == 0:
					b.Compact()
					compacted = b.Revision()
				case n == 2 && i%5 == 0: // a restart, without a state
					b.manager.Close()
					b.restart(limits)
				case n < 7:
					for range 1 + b.rng.IntN(6) {
						b.write()
					}
					synctest.Wait()
				default:
					if b.check(compacted) {
						served++
					}
				}
				if wrong := b.c.CheckInvariants(); wrong != "" {
					t.Fatal(wrong)
				}
			}
			if served < 3 {
				t.Errorf("seed %d: %d watches served", seed, served)
			}
		})
	}
}

func (b *bench) restart(limits cache.Limits) {
	b.t.Helper()
	b.manager = cachetest.NewManager(b.t, source.Source(b.Source), limits)
	b.c = cachetest.Collection(b.t, b.manager, b.res, api.JSON)
	synctest.Wait()
}
