package storagetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/kubeweir/kubeweir/origin/storage"
)

func concurrentCases() []Case {
	return []Case{
		{Name: "ConcurrentCounter", run: testCounter},
		{Name: "ConcurrentCreate", run: testConcurrentCreate},
		{Name: "Linearizable", run: testLinearizable},
		{Name: "LinearizableOneKey", run: testLinearizableOneKey},
		{Name: "SnapshotsAreConsistent", run: testSnapshots},
		{Name: "WatchesOfAll", run: testWatchesOfAll},
	}
}

// parallel calls work for 0..n-1 by some workers, and ends the case when one of them failed.
func (s *session) parallel(workers, n int, work func(i int)) {
	s.Helper()
	indices := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range indices {
				func() {
					finished := false
					// A Fatal ends the goroutine; the others do the rest.
					defer func() {
						if !finished {
							for range indices {
							}
						}
					}()
					work(i)
					finished = true
				}()
			}
		})
	}
	for i := range n {
		indices <- i
	}
	close(indices)
	wg.Wait()
	if s.Failed() {
		s.FailNow()
	}
}

// testCounter checks that compare-and-swap loops lose no increment, whichever engine they use.
func testCounter(s *session) {
	engines := s.engines()
	start := s.current()
	s.put("counter", "0", 0)
	const workers, each = 8, 40
	s.parallel(workers, workers, func(i int) {
		e := engines[i%len(engines)]
		for done := 0; done < each; {
			kv, err := getFrom(s.ctx, e, s.key("counter"))
			if err != nil || kv == nil {
				s.Errorf("read the counter: %s, %v", showPointer(kv), err)
				return
			}
			if s.increment(e, kv, each-done, &done) != nil {
				return
			}
		}
	})
	if kv := s.get("counter"); string(kv.Value) != fmt.Sprint(workers*each) {
		s.Errorf("the counter is %s after %d increments", showPointer(kv), workers*each)
	}
	s.watchedHistory(s.engine, start)
}

// increment adds one to the counter; when it lost, it goes on with what the conflict says is there.
func (s *session) increment(e storage.Engine, kv *storage.KeyValue, most int, done *int) error {
	for most > 0 {
		var n int
		if _, err := fmt.Sscan(string(kv.Value), &n); err != nil {
			s.Error(err)
			return err
		}
		value := fmt.Append(nil, n+1)
		rev, err := e.Put(s.ctx, s.key("counter"), value, storage.Precondition{Revision: kv.Revision}, 0)
		var conflict *storage.ConflictError
		switch {
		case err == nil:
			*done++
			most--
			kv = &storage.KeyValue{Key: kv.Key, Value: value, Revision: rev}
		case errors.As(err, &conflict) && conflict.Current != nil && conflict.Current.Revision > kv.Revision:
			kv = conflict.Current
		default:
			s.Errorf("put at %d: %v", kv.Revision, err)
			return err
		}
	}
	return nil
}

// testConcurrentCreate checks that exactly one of many clients that create the same key succeeds.
func testConcurrentCreate(s *session) {
	engines := s.engines()
	for round := range 20 {
		name := fmt.Sprint("k", round)
		var mu sync.Mutex
		won := map[string]uint64{}
		lost := map[string]int{}
		s.parallel(8, 8, func(i int) {
			value := fmt.Sprint("by ", i)
			rev, err := engines[i%len(engines)].Put(s.ctx, s.key(name), []byte(value), storage.Precondition{}, 0)
			mu.Lock()
			defer mu.Unlock()
			var conflict *storage.ConflictError
			switch {
			case err == nil:
				won[value] = rev
			case errors.As(err, &conflict):
				lost[showPointer(conflict.Current)]++
			default:
				s.Error(err)
			}
		})
		if len(won) != 1 {
			s.Fatalf("%d created %s: %v", len(won), name, won)
		}
		for value, rev := range won {
			s.mustHold(name, value, rev)
			if winner := showPointer(s.kv(name, value, rev)); lost[winner] != 7 || len(lost) != 1 {
				s.Errorf("those who lost to %s were told %v", winner, lost)
			}
		}
	}
}

func testLinearizable(s *session)       { s.linearizable(8, 150, 5) }
func testLinearizableOneKey(s *session) { s.linearizable(6, 80, 1) }

// linearizable checks that operations of concurrent clients on shared keys are linearizable, that is,
// that all results fit one sequential order.
func (s *session) linearizable(clients, each, keys int) {
	start := s.current()
	wl := newWorkload(s, s.engines(), keys)
	s.parallel(clients, clients, func(i int) { wl.run(i, each, nil) })
	wl.verify(s.watchedHistory(s.engine, start))
}

// testSnapshots checks that a range at any time shows all changes up to its revision and none
// after.
func testSnapshots(s *session) {
	engines := s.engines()
	start := s.current()
	wl := newWorkload(s, engines, 12)
	stop := make(chan struct{})
	var mu sync.Mutex
	var shots []storage.RangeResult
	s.parallel(6, 6, func(i int) {
		if i < 4 {
			wl.run(i, 120, nil)
			if wl.ended.Add(1) == 4 {
				close(stop)
			}
			return
		}
		random := rand.New(rand.NewPCG(7, uint64(i)))
		for {
			select {
			case <-stop:
				return
			default:
			}
			res, err := engines[i%len(engines)].Range(s.ctx, storage.RangeOptions{Prefix: s.prefix, Count: true})
			if err != nil {
				s.Error(err)
				return
			}
			mu.Lock()
			if len(shots) < 400 || random.IntN(10) == 0 {
				shots = append(shots, res)
			}
			mu.Unlock()
		}
	})
	h := s.watchedHistory(s.engine, start)
	for _, shot := range shots {
		if got, want := describeAll(shot.KVs), describeAll(h.at(shot.Revision)); got != want || shot.Count != int64(len(shot.KVs)) {
			s.Fatalf("at %d a range showed (count %d)\n%s\nit was\n%s", shot.Revision, shot.Count, got, want)
		}
	}
}

// testWatchesOfAll runs watches of every kind during concurrent writes: some start before the
// writes, some resume during them, and some read after them.
func testWatchesOfAll(s *session) {
	engines := s.engines()
	start := s.current()
	late := make(chan struct{})
	var recorders []*recorder
	for i, e := range engines {
		recorders = append(recorders,
			s.record(e, s.prefix, start, 0, nil),
			s.record(e, s.prefix, start, 1, nil), // resumed after every batch
			s.record(e, s.prefix, start, 7+i, nil),
			s.record(e, s.key("k1"), start, 0, nil), // k1, k10, k11, ...
			s.record(e, s.key("k2"), start, 5, late),
			s.record(e, s.prefix, start, 0, late),
			s.record(e, s.key("none"), start, 0, nil),
		)
	}
	wl := newWorkload(s, engines, 24)
	s.parallel(6, 6, func(i int) {
		wl.run(i, 150, func(done int) bool {
			if i == 0 && done == 75 {
				close(late)
			}
			return true
		})
	})
	target := s.current()
	h := s.watchedHistory(s.engine, start)
	wl.verify(h)
	s.wantReliable(h, target, recorders...)
}
