package storagetest

import (
	"bytes"
	"errors"
	"strings"

	"github.com/kubeweir/kubeweir/origin/storage"
)

func writeCases() []Case {
	return []Case{
		{Name: "Create", run: testCreate},
		{Name: "CreateExisting", run: testCreateExisting},
		{Name: "Update", run: testUpdate},
		{Name: "UpdateMissing", run: testUpdateMissing},
		{Name: "UpdateStale", run: testUpdateStale},
		{Name: "UpdateSameValue", run: testUpdateSameValue},
		{Name: "Delete", run: testDelete},
		{Name: "DeleteConflicts", run: testDeleteConflicts},
		{Name: "Recreate", run: testRecreate},
		{Name: "RevisionsRise", run: testRevisionsRise},
		{Name: "ConflictsLeaveNoTrace", run: testConflictsLeaveNoTrace},
		{Name: "Values", run: testValues},
		{Name: "ValuesAreCopied", run: testValuesAreCopied},
		{Name: "TooLarge", run: testTooLarge},
	}
}

func testCreate(s *session) {
	before := s.current()
	rev := s.put("a", "one", 0)
	if rev <= before {
		s.Errorf("created at %d, the revision was %d before", rev, before)
	}
	if now := s.current(); now < rev {
		s.Errorf("the current revision is %d after a change at %d", now, rev)
	}
	s.mustHold("a", "one", rev)
}

func testCreateExisting(s *session) {
	rev := s.put("a", "one", 0)
	_, err := s.engine.Put(s.ctx, s.key("a"), []byte("two"), storage.Precondition{}, 0)
	s.wantConflict(err, "a", s.kv("a", "one", rev))
	s.mustHold("a", "one", rev)
}

func testUpdate(s *session) {
	first := s.put("a", "one", 0)
	second := s.put("a", "two", first)
	s.mustHold("a", "two", second)
	third := s.put("a", "three", second)
	s.mustHold("a", "three", third)
}

func testUpdateMissing(s *session) {
	other := s.put("b", "x", 0)
	_, err := s.engine.Put(s.ctx, s.key("a"), []byte("one"), storage.Precondition{Revision: other}, 0)
	s.wantConflict(err, "a", nil)
	s.mustNotExist("a")
}

func testUpdateStale(s *session) {
	first := s.put("a", "one", 0)
	second := s.put("a", "two", first)
	for _, expect := range []uint64{first, second + 1, second - 1, 1 << 40} {
		if expect == second {
			continue
		}
		_, err := s.engine.Put(s.ctx, s.key("a"), []byte("three"), storage.Precondition{Revision: expect}, 0)
		s.wantConflict(err, "a", s.kv("a", "two", second))
	}
	s.mustHold("a", "two", second)
}

// testUpdateSameValue checks that writing the current value again is a change.
func testUpdateSameValue(s *session) {
	first := s.put("a", "same", 0)
	w := s.watch(s.prefix, first)
	second := s.put("a", "same", first)
	s.mustHold("a", "same", second)
	s.wantEvents(w, s.updated("a", "same", second, s.kv("a", "same", first)))
}

func testDelete(s *session) {
	first := s.put("a", "one", 0)
	retained := s.put("b", "kept", 0)
	gone := s.delete("a", first)
	if gone <= retained {
		s.Errorf("deleted at %d after a change at %d", gone, retained)
	}
	s.mustNotExist("a")
	s.mustHold("b", "kept", retained)
}

func testDeleteConflicts(s *session) {
	_, err := s.engine.Delete(s.ctx, s.key("a"), storage.Precondition{Revision: 1})
	s.wantConflict(err, "a", nil)
	first := s.put("a", "one", 0)
	second := s.put("a", "two", first)
	_, err = s.engine.Delete(s.ctx, s.key("a"), storage.Precondition{Revision: first})
	s.wantConflict(err, "a", s.kv("a", "two", second))
	gone := s.delete("a", second)
	for _, expect := range []uint64{first, second, gone} {
		_, err = s.engine.Delete(s.ctx, s.key("a"), storage.Precondition{Revision: expect})
		s.wantConflict(err, "a", nil)
	}
}

func testRecreate(s *session) {
	first := s.put("a", "one", 0)
	gone := s.delete("a", first)
	for _, expect := range []uint64{first, gone} {
		_, err := s.engine.Put(s.ctx, s.key("a"), []byte("x"), storage.Precondition{Revision: expect}, 0)
		s.wantConflict(err, "a", nil)
	}
	again := s.put("a", "two", 0)
	if again <= gone {
		s.Errorf("created again at %d, deleted at %d", again, gone)
	}
	_, err := s.engine.Delete(s.ctx, s.key("a"), storage.Precondition{Revision: first})
	s.wantConflict(err, "a", s.kv("a", "two", again))
	s.mustHold("a", "two", again)
}

func testRevisionsRise(s *session) {
	last := s.current()
	at := map[string]uint64{}
	for i := range 60 {
		name := string(rune('a' + i%7))
		var rev uint64
		if at[name] != 0 && i%5 == 0 {
			rev = s.delete(name, at[name])
			at[name] = 0
		} else {
			rev = s.put(name, "v", at[name])
			at[name] = rev
		}
		if rev <= last {
			s.Fatalf("change %d of %s is at %d, the one before it at %d", i, name, rev, last)
		}
		last = rev
	}
}

// testConflictsLeaveNoTrace checks that a rejected change neither raises the revision nor makes an
// event.
func testConflictsLeaveNoTrace(s *session) {
	first := s.put("a", "one", 0)
	w := s.watch(s.prefix, first)
	for range 5 {
		_, err := s.engine.Put(s.ctx, s.key("a"), []byte("x"), storage.Precondition{}, 0)
		s.wantConflict(err, "a", s.kv("a", "one", first))
		_, err = s.engine.Delete(s.ctx, s.key("missing"), storage.Precondition{Revision: first})
		s.wantConflict(err, "missing", nil)
	}
	fence := s.put("fence", "", 0)
	s.wantEvents(w, s.created("fence", "", fence))
}

func testValues(s *session) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	values := map[string]string{
		"empty":  "",
		"zero":   "\x00",
		"binary": string(all),
		"proto":  "k8s\x00\n\x0c\n\x02v1\x12\x06Secret",
		"large":  strings.Repeat(string(all), 4096+1024), // 1.25 MiB, below every engine's limit
	}
	start := s.current()
	revs := map[string]uint64{}
	for name, value := range values {
		revs[name] = s.put(name, value, 0)
		s.mustHold(name, value, revs[name])
	}
	w := s.watch(s.prefix, start)
	seen := 0
	for seen < len(values) {
		for _, ev := range s.next(w).Events {
			name := strings.TrimPrefix(ev.KV.Key, s.prefix)
			s.sameEvents([]storage.Event{ev}, []storage.Event{s.created(name, values[name], revs[name])})
			seen++
		}
	}
}

// testValuesAreCopied checks that the caller may reuse its buffer once Put has returned.
func testValuesAreCopied(s *session) {
	start := s.current()
	buf := []byte("as it was")
	rev, err := s.engine.Put(s.ctx, s.key("a"), buf, storage.Precondition{}, 0)
	if err != nil {
		s.Fatal(err)
	}
	copy(buf, bytes.Repeat([]byte{'!'}, len(buf)))
	s.mustHold("a", "as it was", rev)
	s.wantEvents(s.watch(s.prefix, start), s.created("a", "as it was", rev))
}

func testTooLarge(s *session) {
	rev := s.put("a", "one", 0)
	for _, size := range []int{2 << 20, 3 << 20, 9 << 20} {
		_, err := s.engine.Put(s.ctx, s.key("a"), make([]byte, size), storage.Precondition{Revision: rev}, 0)
		if !errors.Is(err, storage.ErrTooLarge) {
			s.Errorf("put %d MiB: %v, want ErrTooLarge", size>>20, err)
		}
		_, err = s.engine.Put(s.ctx, s.key("b"), make([]byte, size), storage.Precondition{}, 0)
		if !errors.Is(err, storage.ErrTooLarge) {
			s.Errorf("create %d MiB: %v, want ErrTooLarge", size>>20, err)
		}
	}
	s.mustHold("a", "one", rev)
	s.mustNotExist("b")
	// 1.5 MiB is what etcd takes of a whole request.
	s.put("a", strings.Repeat("x", 3<<19-16<<10), rev)
}
