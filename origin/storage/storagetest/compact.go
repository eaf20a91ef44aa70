package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubeweir/kubeweir/origin/storage"
)

func compactCases() []Case {
	return []Case{
		{Name: "CompactRange", run: testCompactRange},
		{Name: "CompactWatch", run: testCompactWatch},
		{Name: "CompactTwice", run: testCompactTwice},
		{Name: "CompactWatcherBehind", run: testCompactWatcherBehind},
		{Name: "CompactWhileWatching", run: testCompactWhileWatching},
	}
}

func (s *session) wantCompacted(opts storage.RangeOptions) {
	s.Helper()
	if res, err := s.engine.Range(s.ctx, opts); !errors.Is(err, storage.ErrCompacted) {
		s.Errorf("range %+v: %s, error %v, want ErrCompacted", opts, showKVs(res.KVs), err)
	}
}

func testCompactRange(s *session) {
	before := s.current()
	old := s.put("old", "from long ago", 0)
	gone := s.put("gone", "x", 0)
	s.delete("gone", gone)
	first := s.put("a", "one", 0)
	second := s.put("a", "two", first)
	third := s.put("a", "three", second)
	s.compact(second)
	for _, rev := range []uint64{before, old, gone, first, second - 1} {
		s.wantCompacted(storage.RangeOptions{Prefix: s.prefix, Revision: rev})
		s.wantCompacted(storage.RangeOptions{Prefix: s.key("old"), Exact: true, Revision: rev})
	}
	// The states at the revision of the compaction and later can still be read.
	for rev, want := range map[uint64]string{second: "two", third: "three"} {
		res := s.scan(storage.RangeOptions{Prefix: s.prefix, Revision: rev})
		if got := names(res.KVs, s.prefix); !slices.Equal(got, []string{"a", "old"}) || string(res.KVs[0].Value) != want || res.KVs[1].Revision != old {
			s.Errorf("at %d: %s", rev, showKVs(res.KVs))
		}
	}
	s.mustHold("a", "three", third)
	s.mustHold("old", "from long ago", old)
	s.mustNotExist("gone")
	s.delete("old", old)
	s.put("gone", "again", 0)
}

func testCompactWatch(s *session) {
	start := s.current()
	first := s.put("a", "one", 0)
	second := s.put("a", "two", first)
	third := s.put("a", "three", second)
	fourth := s.put("a", "four", third)
	s.compact(third)
	for _, after := range []uint64{start, first} {
		w := s.watch(s.prefix, after)
		for {
			b, err := w.Next(s.ctx)
			if errors.Is(err, storage.ErrCompacted) {
				break
			}
			if err != nil || len(b.Events) > 0 {
				s.Fatalf("watch after %d, compacted at %d: %v, %v", after, third, showEvents(b.Events), err)
			}
		}
		if _, err := w.Next(s.ctx); err == nil {
			s.Error("Next succeeds after it has failed")
		}
	}
	// These watches have all events, with previous values.
	fifth := s.put("a", "five", fourth)
	s.wantEvents(s.watch(s.prefix, third), s.updated("a", "four", fourth, s.kv("a", "three", third)), s.updated("a", "five", fifth, s.kv("a", "four", fourth)))
	s.wantEvents(s.watch(s.prefix, fourth), s.updated("a", "five", fifth, s.kv("a", "four", fourth)))
	// The change at the compacted revision is there, but its previous value may be gone: then the
	// watch fails.
	w := s.watch(s.prefix, third-1)
	b, err := w.Next(s.ctx)
	for err == nil && len(b.Events) == 0 {
		b, err = w.Next(s.ctx)
	}
	if err == nil {
		s.sameEvents(b.Events[:1], []storage.Event{s.updated("a", "three", third, s.kv("a", "two", second))})
	} else if !errors.Is(err, storage.ErrCompacted) {
		s.Errorf("watch from the compaction's revision: %v", err)
	}
}

func testCompactTwice(s *session) {
	first := s.put("a", "one", 0)
	second := s.put("a", "two", first)
	s.compact(second)
	s.compact(second)
	s.compact(first)
	s.wantCompacted(storage.RangeOptions{Prefix: s.prefix, Revision: first})
	s.mustHold("a", "two", second)
	third := s.put("a", "three", second)
	s.compact(third)
	s.wantCompacted(storage.RangeOptions{Prefix: s.prefix, Revision: second})
}

// testCompactWatcherBehind checks that a watcher behind the compaction gets all events or an error,
// never a gap.
func testCompactWatcherBehind(s *session) {
	start := s.current()
	w := s.watch(s.prefix, start)
	h := newHistory(s.prefix)
	value := strings.Repeat("0123456789abcdef", 4096)
	rev := uint64(0)
	for i := range 300 {
		v := fmt.Sprint(i, value)
		rev = s.put("a", v, rev)
		h.add(*s.kv("a", v, rev))
	}
	s.compact(rev)
	log := watchLog{prefix: s.prefix, after: start}
	for log.revision() < rev {
		b, err := w.Next(s.ctx)
		if errors.Is(err, storage.ErrCompacted) {
			break
		}
		if err != nil {
			s.Fatal(err)
		}
		log.batches = append(log.batches, storage.Batch{Events: slices.Clone(b.Events), Revision: b.Revision})
	}
	for _, err := range log.check(h) {
		s.Error(err)
	}
	last := s.put("a", "end", rev)
	s.wantEvents(s.watch(s.prefix, rev), s.updated("a", "end", last, &h.changes[len(h.changes)-1]))
}

// testCompactWhileWatching checks that compactions do not affect watchers that keep up.
func testCompactWhileWatching(s *session) {
	start := s.put("other", "x", 0)
	w := s.watch(s.prefix, start)
	var last *storage.KeyValue
	for i := range 120 {
		ev := s.write("a", fmt.Sprint(i), last)
		last = &ev.KV
		s.wantEvents(w, ev)
		if i%10 == 9 {
			s.compact(last.Revision)
			s.wantProgress(w, last.Revision)
		}
	}
}
