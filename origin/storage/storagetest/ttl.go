package storagetest

import (
	"time"

	"github.com/kubeweir/kubeweir/origin/storage"
)

func ttlCases() []Case {
	return []Case{
		{Name: "TTLExpires", run: testTTLExpires},
		{Name: "TTLSetAnew", run: testTTLSetAnew},
		{Name: "TTLManyAtOnce", run: testTTLMany},
		{Name: "TTLOverReopening", run: testTTLReopen, need: needReopen, time: faultTime},
	}
}

func (s *session) putTTL(name, value string, expect uint64, ttl time.Duration) uint64 {
	s.Helper()
	rev, err := s.engine.Put(s.ctx, s.key(name), []byte(value), storage.Precondition{Revision: expect}, ttl)
	if err != nil {
		s.Fatalf("put %s with a time to live: %v", name, err)
	}
	return rev
}

func testTTLExpires(s *session) {
	ttl := s.store.ShortestTTL
	start := s.current()
	w := s.watch(s.prefix, start)
	begun := time.Now()
	rev := s.putTTL("a", "v", 0, ttl)
	s.mustHold("a", "v", rev)
	s.wantEvents(w, s.created("a", "v", rev))
	gone := s.wantExpiry(w, "a", s.kv("a", "v", rev))
	if lived := time.Since(begun); lived < ttl-100*time.Millisecond || lived > ttl+5*time.Second {
		s.Errorf("the key lived %v, want %v", lived, ttl)
	}
	s.mustNotExist("a")
	if now := s.current(); now < gone {
		s.Errorf("the current revision is %d after the key went at %d", now, gone)
	}
	// It can be read as it was, and made again.
	if old := s.scan(storage.RangeOptions{Prefix: s.prefix, Revision: rev}); len(old.KVs) != 1 {
		s.Errorf("at %d there was %s", rev, showKVs(old.KVs))
	}
	s.wantEvents(s.watch(s.prefix, start), s.created("a", "v", rev), s.deleted("a", gone, s.kv("a", "v", rev)))
	again := s.put("a", "again", 0)
	s.wantEvents(w, s.created("a", "again", again))
}

// wantExpiry reads until a key's deletion comes, and returns its revision.
func (s *session) wantExpiry(w storage.Watcher, name string, previous *storage.KeyValue) uint64 {
	s.Helper()
	b := s.next(w)
	for len(b.Events) == 0 {
		b = s.next(w)
	}
	rev := b.Events[0].KV.Revision
	s.sameEvents(b.Events, []storage.Event{s.deleted(name, rev, previous)})
	if rev <= previous.Revision {
		s.Fatalf("deleted at %d, written at %d", rev, previous.Revision)
	}
	return rev
}

// testTTLSetAnew checks that a later Put resets the time to live, to a longer one or to none. A key
// that is created again inherits nothing from its deleted predecessor.
func testTTLSetAnew(s *session) {
	ttl := s.store.ShortestTTL
	forever := s.putTTL("forever", "1", 0, ttl)
	longer := s.putTTL("longer", "1", 0, ttl)
	again := s.putTTL("again", "1", 0, ttl)
	stays := s.put("shorter", "1", 0)
	forever = s.put("forever", "2", forever)
	longer = s.putTTL("longer", "2", longer, time.Hour)
	s.delete("again", again)
	again = s.put("again", "2", 0)
	// These go, so the time of all above has passed when they have gone.
	w := s.watch(s.prefix, s.current())
	stays = s.putTTL("shorter", "2", stays, ttl)
	last := s.putTTL("last", "1", 0, ttl)
	want := map[string]bool{"shorter": true, "last": true}
	for len(want) > 0 {
		for _, ev := range s.next(w).Events {
			if ev.Type != storage.Deleted {
				continue
			}
			switch ev.KV.Key {
			case s.key("shorter"):
				s.sameEvents([]storage.Event{ev}, []storage.Event{s.deleted("shorter", ev.KV.Revision, s.kv("shorter", "2", stays))})
			case s.key("last"):
				s.sameEvents([]storage.Event{ev}, []storage.Event{s.deleted("last", ev.KV.Revision, s.kv("last", "1", last))})
			default:
				s.Fatalf("%v", showEvents([]storage.Event{ev}))
			}
			delete(want, ev.KV.Key[len(s.prefix):])
		}
	}
	s.mustHold("forever", "2", forever)
	s.mustHold("longer", "2", longer)
	s.mustHold("again", "2", again)
}

// testTTLMany checks that the events of keys that expire together are like those of any other
// change.
func testTTLMany(s *session) {
	ttl := s.store.ShortestTTL
	start := s.current()
	r := s.record(s.engine, s.prefix, start, 2, nil)
	const n = 100
	s.parallel(8, n, func(i int) { s.putTTL(string(rune('a'+i%26))+string(rune('a'+i/26)), "v", 0, ttl) })
	w := s.watch(s.prefix, start)
	gone, last := 0, uint64(0)
	for gone < n {
		for _, ev := range s.next(w).Events {
			if ev.Type == storage.Deleted {
				gone, last = gone+1, ev.KV.Revision
			}
		}
	}
	h := s.watchedHistory(s.engine, start)
	s.wantReliable(h, last, r)
	if left := h.at(last); len(left) != 0 {
		s.Errorf("left: %s", showKVs(left))
	}
}

// testTTLReopen checks that times to live survive a restart of the process.
func testTTLReopen(s *session) {
	ttl := s.store.ShortestTTL
	start := s.current()
	rev := s.putTTL("a", "v", 0, ttl)
	retained := s.put("kept", "v", 0)
	s.reopen()
	w := s.watch(s.key("a"), start)
	s.wantEvents(w, s.created("a", "v", rev))
	s.wantExpiry(w, "a", s.kv("a", "v", rev))
	s.mustNotExist("a")
	s.mustHold("kept", "v", retained)
}
