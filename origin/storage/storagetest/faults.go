package storagetest

import (
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/origin/storage"
)

func faultCases() []Case {
	return []Case{
		{Name: "FaultIdle", run: testFaultIdle, need: needFault, time: faultTime},
		{Name: "FaultUnderLoad", run: testFaultUnderLoad, need: needFault, time: faultTime},
	}
}

// testFaultIdle checks that the engine and its watches resume by themselves when the store
// recovers.
func testFaultIdle(s *session) {
	start := s.current()
	w := s.watch(s.prefix, start)
	idle := s.watch(s.key("none"), start)
	a := s.put("a", "one", 0)
	s.store.Fault()
	// The engine may fail until it has noticed the recovery.
	b := s.putSoon("b", "two")
	s.wantEvents(w, s.created("a", "one", a), s.created("b", "two", b))
	s.wantProgress(idle, b)
	s.store.Fault()
	idle.RequestProgress()
	c := s.putSoon("c", "three")
	s.wantEvents(w, s.created("c", "three", c))
	s.wantProgress(idle, c)
}

// putSoon creates a key, over and over while the store cannot be reached.
func (s *session) putSoon(name, value string) uint64 {
	s.Helper()
	for {
		_, err := s.engine.Put(s.ctx, s.key(name), []byte(value), storage.Precondition{}, 0)
		kv, readErr := getFrom(s.ctx, s.engine, s.key(name))
		if readErr == nil && kv != nil {
			return kv.Revision
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.ctx.Done():
			s.Fatalf("put %s: %v, then %v", name, err, readErr)
		}
	}
}

// testFaultUnderLoad checks that no acknowledged change is lost, that nothing happens twice, and
// that watches have no gap.
func testFaultUnderLoad(s *session) {
	const faults, clients, between = 4, 6, 120
	engines := s.engines()
	start := s.current()
	late := make(chan struct{})
	recorders := []*recorder{
		s.record(engines[0], s.prefix, start, 0, nil),
		s.record(engines[len(engines)-1], s.prefix, start, 11, nil),
		s.record(engines[0], s.key("k1"), start, 0, late),
		s.record(engines[0], s.key("none"), start, 0, nil),
	}
	wl := newWorkload(s, engines, 5)
	wl.faults = true
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() { wl.runUntil(stop, i) })
	}
	for n := range faults {
		if !s.awaitAcks(wl, wl.acked.Load()+between) {
			break
		}
		s.store.Fault()
		if n == 1 {
			close(late)
		}
	}
	s.awaitAcks(wl, wl.acked.Load()+between)
	close(stop)
	wg.Wait()
	if s.Failed() {
		s.FailNow()
	}
	target := s.current()
	h := s.watchedHistory(s.engine, start)
	wl.verify(h)
	s.wantReliable(h, target, recorders...)
	s.Logf("%d calls, %d changes acknowledged over %d faults", len(wl.ops), wl.acked.Load(), faults)
}

// awaitAcks waits until so many changes are acknowledged: the store is at work. Without them the
// case fails.
func (s *session) awaitAcks(wl *workload, n int64) bool {
	s.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for wl.acked.Load() < n && !s.Failed() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.Errorf("%d changes acknowledged, want %d", wl.acked.Load(), n)
		}
	}
	return !s.Failed()
}
