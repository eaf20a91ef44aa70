package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// TestListThatEndsEarlyIsNeverServed checks that a streaming list that ends before its final
// bookmark is discarded, however cleanly it ended.
func TestListThatEndsEarlyIsNeverServed(t *testing.T) {
	for after := range 4 {
		cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, s *cachetest.Source, _ *cache.Manager) {
			for _, key := range []string{"a/1", "a/2", "a/3"} {
				s.Create(cachetest.Pods, cachetest.Pod(key, ""))
			}
			m := cachetest.NewManager(t, &cutSource{Source: s, phase: "initial", at: after + 1, times: 100}, cache.Limits{})
			defer m.Close()
			for range 3 {
				c, err := m.Collection(t.Context(), cachetest.PodResource(), api.JSON)
				switch {
				case err != nil:
				case c.RV() != s.Revision() || c.Snapshot().Len() != 3:
					t.Errorf("ended after %d events: %d objects at %d", after, c.Snapshot().Len(), c.RV())
				}
			}
		})
	}
}

// cutSource interrupts what it sends, a number of times, always at the same point of the same
// phase, and may repeat events.
type cutSource struct {
	*cachetest.Source
	// phase is "initial" (streaming list), "live" (events), "list" (first page) or "page" (later
	// pages). at is the number of items before the cut.
	phase string
	at    int
	err   error // nil for a clean end
	// repeat is by how many versions a resumed watch begins too early.
	repeat uint64
	limit  int64 // the maximum size of pages, 0 for none

	mu    sync.Mutex
	times int // guarded by mu
}

var errCut = errors.New("cut")

// cut reports whether to cut here, and counts it.
func (s *cutSource) cut(phase string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != phase || s.at != n || s.times == 0 {
		return false
	}
	s.times--
	return true
}

func (s *cutSource) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	phase, n := "live", 0
	if opts.SendInitialEvents {
		phase = "initial"
	} else {
		opts.ResourceVersion -= min(opts.ResourceVersion, s.repeat)
	}
	if s.cut(phase, n) {
		return s.err
	}
	err := s.Source.Watch(ctx, res, enc, opts, func(ev source.Event) error {
		if err := handle(ev); err != nil {
			return err
		}
		n++
		if ev.InitialEventsEnd {
			phase, n = "live", 1
		}
		if s.cut(phase, n) {
			return errCut
		}
		return nil
	})
	if errors.Is(err, errCut) {
		return s.err
	}
	return err
}

func (s *cutSource) List(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.ListOptions, visit func([]byte) error) (source.ListMeta, error) {
	phase, n := "list", 0
	if s.limit > 0 {
		opts.Limit = min(opts.Limit, s.limit)
	}
	switch {
	case opts.Limit == 1:
		phase = "one"
	case opts.Continue != "":
		phase = "page"
	}
	meta, err := s.Source.List(ctx, res, enc, opts, func(item []byte) error {
		if s.cut(phase, n) {
			return errCut
		}
		n++
		return visit(item)
	})
	if err == nil && s.cut(phase, n) || errors.Is(err, errCut) {
		return source.ListMeta{}, s.err
	}
	return meta, err
}

// TestInterruptedListsAndWatchesRecover interrupts lists and watches at every point, in every way,
// repeatedly, while objects are written. Every served state must be that of its version, watches
// must miss nothing, and in the end everything must be current.
func TestInterruptedListsAndWatchesRecover(t *testing.T) {
	gr := cachetest.PodResource().GroupResource()
	ends := []struct {
		name string
		err  error
	}{
		{"cleanly", nil},
		{"mid-frame", fmt.Errorf("watch of pods: %w", io.ErrUnexpectedEOF)},
		{"reset", errors.New("connection reset by peer")},
		{"expired", apierrors.NewResourceExpired("too old")},
		{"busy", apierrors.NewTooManyRequests("busy", 1)},
		{"unavailable", apierrors.NewServiceUnavailable("starting")},
		{"forbidden", apierrors.NewForbidden(gr, "", errors.New("no"))},
	}
	points := []struct {
		phase string
		last  int
	}{{"initial", 6}, {"live", 5}, {"list", 2}, {"page", 2}}
	seed := soak.Seed(t)
	for _, point := range points {
		for at := 0; at <= point.last; at++ {
			for i, end := range ends {
				if end.err == nil && (point.phase == "list" || point.phase == "page") {
					continue // lists detect their own ends
				}
				repetitions := []int{1, 3, 9}
				if !soak.Enabled() { // each with each point and each end, but not every pair
					repetitions = repetitions[(at+i)%3:][:1]
				}
				for _, times := range repetitions {
					seed++
					source := &cutSource{phase: point.phase, at: at, times: times, err: end.err, repeat: seed % 3}
					t.Run(fmt.Sprintf("%s-%d-%s-%d", point.phase, at, end.name, times), func(t *testing.T) {
						bubble.Test(t, func(t *testing.T) { runCut(t, source, seed) })
					})
				}
			}
		}
	}
}

func runCut(t *testing.T, s *cutSource, seed uint64) {
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 11)), enc: api.JSON,
		live: map[string]bool{}, decoded: map[string]*object.Object{},
		source: cachetest.New(cachetest.PodResource()),
	}
	// A relist in between hides events from watches.
	w.compact = apierrors.IsResourceExpired(s.err)
	s.Source, s.limit = w.source, 2
	if s.phase == "list" || s.phase == "page" {
		w.source.NoWatchList()
	}
	for range 5 {
		w.write()
	}
	w.manager = cachetest.NewManager(t, s, cache.Limits{})
	defer w.manager.Close()
	for range 25 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		c, err := w.manager.Collection(ctx, cachetest.PodResource(), api.JSON)
		cancel()
		if err == nil {
			w.c = c
			w.follow()
			w.check()
		}
		w.write()
		time.Sleep(time.Duration(w.rand.IntN(400)) * time.Millisecond)
		synctest.Wait()
	}
	s.mu.Lock()
	s.times = 0
	s.mu.Unlock()
	time.Sleep(90 * time.Second)
	synctest.Wait()
	if w.c = cachetest.PodCollection(t, w.manager); w.c.RV() != w.source.Revision() || w.c.State().Phase != reflector.Synced {
		t.Errorf("in the end at %d, the source at %d, state %+v", w.c.RV(), w.source.Revision(), w.c.State())
	}
	w.check()
	for _, fl := range w.watches {
		w.guarantees(fl)
	}
}
