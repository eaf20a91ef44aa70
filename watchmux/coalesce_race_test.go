package watchmux_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"sync"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/watchmux"
)

// TestCoalesceWhileWritten starts coalescing watchers while a writer writes, interrupts them while
// they read, and resumes them from the last version they saw. In the end they must agree with a
// list, and have lost nothing.
func TestCoalesceWhileWritten(t *testing.T) {
	const readers, writes = 6, 20_000
	f := newFeeder(t, 0)
	m := start(t, watchmux.Options{MaxEvents: 300}, 0)
	var mu sync.Mutex // a list is of one version
	present := map[string]state{}
	list := func(label string) (map[string]bool, uint64) {
		mu.Lock()
		defer mu.Unlock()
		got := map[string]bool{}
		for key, s := range present {
			if label == "" || s.label == label {
				got[key] = true
			}
		}
		return got, m.RV()
	}
	var all sync.WaitGroup
	for n := range readers {
		label := ""
		if n%2 == 1 {
			label = "x"
		}
		selector := ""
		if label != "" {
			selector = "l=" + label
		}
		sel := filter(t, "", selector, "")
		all.Go(func() {
			rng := rand.New(rand.NewSource(int64(n)))
			got, rv := list(label)
			for lists := 0; lists < 1000; {
				wake := make(chan struct{}, 1)
				w, err := m.Watch(rv, sel, func() {
					select {
					case wake <- struct{}{}:
					default:
					}
				})
				switch {
				case errors.Is(err, errGone):
					return
				case err != nil:
					got, rv = list(label)
					lists++
					continue
				}
				w.Coalesce(false)
				for err == nil {
					size := 1 + rng.Intn(20)
					var ds []watchmux.Delivery
					var seen uint64
					ds, seen, err = w.Next(nil, size)
					cut := len(ds)
					if err == nil && rng.Intn(50) == 0 {
						cut = rng.Intn(len(ds) + 1) // the client has no more
					}
					for _, d := range ds[:cut] {
						if d.RV < rv {
							t.Errorf("%s %s@%d after %d", d.Type, d.Object.Key, d.RV, rv)
						}
						rv = d.RV
						switch key := d.Object.Key; {
						case d.Type == api.Added && got[key], d.Type != api.Added && !got[key]:
							t.Errorf("%s %s@%d, exists: %t", d.Type, key, d.RV, got[key])
						case d.Type == api.Deleted:
							delete(got, key)
						default:
							got[key] = true
						}
					}
					if cut < len(ds) {
						w.Stop()
						break
					}
					if len(ds) < size && !w.Behind() && err == nil {
						rv = max(rv, seen)
						if !w.MustReadNow() {
							<-wake
						}
					}
				}
				if errors.Is(err, watchmux.ErrExpired) {
					got, rv = list(label)
					lists++
				} else if errors.Is(err, errGone) {
					if want, _ := list(label); !maps.Equal(got, want) {
						t.Errorf("%q: %v, want %v", label, got, want)
					}
					return
				}
			}
			t.Errorf("%q: too many relists", label)
		})
	}
	rng := rand.New(rand.NewSource(1))
	for range writes {
		s := state{fmt.Sprint("ns/", rng.Intn(40)), []string{"x", "x", "x", "y"}[rng.Intn(4)], ""}
		mu.Lock()
		if _, there := present[s.key]; there && rng.Intn(8) == 0 {
			delete(present, s.key)
			m.Append(f.remove(s.key))
		} else {
			present[s.key] = s
			m.Append(f.set(s))
		}
		mu.Unlock()
	}
	m.Close(errGone)
	all.Wait()
	if s := m.Stats(); s.Watchers != 0 {
		t.Errorf("%+v", s)
	}
}
