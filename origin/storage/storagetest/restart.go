package storagetest

import (
	"fmt"

	"github.com/kubeweir/kubeweir/origin/storage"
)

func restartCases() []Case {
	return []Case{
		{Name: "ReopenKeepsAll", run: testReopen, need: needReopen, time: faultTime},
		{Name: "ReopenUnderLoad", run: testReopenUnderLoad, need: needReopen, time: faultTime},
		{Name: "ReopenKeepsCompaction", run: testReopenCompaction, need: needReopen, time: faultTime},
		{Name: "BesideSeesAll", run: testBeside, need: needBeside},
	}
}

// testReopen checks that state, history and the revision counter survive a restart.
func testReopen(s *session) {
	start := s.current()
	want := s.story()
	last := want[len(want)-1].KV.Revision
	for range 3 {
		s.reopen()
		if now := s.current(); now < last {
			s.Fatalf("the revision is %d, it was %d", now, last)
		}
		s.wantEvents(s.watch(s.prefix, start), want...)
		old := s.scan(storage.RangeOptions{Prefix: s.prefix, Revision: want[4].KV.Revision})
		if showKVs(old.KVs) != showKVs([]storage.KeyValue{*s.kv("a", "two", want[2].KV.Revision), *s.kv("b", "again", want[4].KV.Revision)}) {
			s.Errorf("at %d: %s", old.Revision, showKVs(old.KVs))
		}
		name := fmt.Sprint("after", len(want))
		rev := s.put(name, "v", 0)
		if rev <= last {
			s.Fatalf("a change at %d, the last before was at %d", rev, last)
		}
		want, last = append(want, s.created(name, "v", rev)), rev
	}
}

// testReopenUnderLoad checks that changes acknowledged before a crash survive it. Other changes may
// survive too.
func testReopenUnderLoad(s *session) {
	start := s.current()
	wl := newWorkload(s, []storage.Engine{s.engine}, 4)
	wl.faults = true
	for round := range 3 {
		crashed := make(chan struct{})
		enough := wl.acked.Load() + 100
		go func() {
			defer close(crashed)
			if s.awaitAcks(wl, enough) {
				wl.crashing.Store(true)
				s.reopen()
			}
		}()
		s.parallel(5, 5, func(i int) { wl.runUntil(crashed, 10*(round+1)+i) })
		<-crashed
		wl.crashing.Store(false)
		wl.engines = []storage.Engine{s.engine}
	}
	wl.verify(s.watchedHistory(s.engine, start))
}

func testReopenCompaction(s *session) {
	first := s.put("a", "one", 0)
	second := s.put("a", "two", first)
	s.compact(second)
	s.reopen()
	s.wantCompacted(storage.RangeOptions{Prefix: s.prefix, Revision: first})
	s.mustHold("a", "two", second)
	third := s.put("a", "three", second)
	s.wantEvents(s.watch(s.prefix, second), s.updated("a", "three", third, s.kv("a", "two", second)))
}

// testBeside checks that an engine reads and watches the writes of another engine immediately.
func testBeside(s *session) {
	other := s.beside()
	start := s.current()
	w := s.watchOn(other, s.prefix, start)
	want := s.story()
	s.wantEvents(w, want...)
	first := s.put("c", "one", 0)
	s.compact(first)
	s.put("c", "two", first)
	if now, err := other.CurrentRevision(s.ctx); err != nil || now <= first {
		s.Errorf("current revision %d, %v", now, err)
	}
	mine := s.scan(storage.RangeOptions{Prefix: s.prefix})
	if theirs, err := other.Range(s.ctx, storage.RangeOptions{Prefix: s.prefix}); err != nil || describeAll(theirs.KVs) != describeAll(mine.KVs) {
		s.Errorf("one engine reads\n%s\nthe other (%v)\n%s", describeAll(mine.KVs), err, describeAll(theirs.KVs))
	}
}
