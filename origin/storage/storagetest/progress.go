package storagetest

import (
	"fmt"

	"github.com/kubeweir/kubeweir/origin/storage"
)

func progressCases() []Case {
	return []Case{
		{Name: "ProgressIdle", run: testProgressIdle},
		{Name: "ProgressOfOthersWrites", run: testProgressOthers},
		{Name: "ProgressBehindEvents", run: testProgressBehindEvents},
		{Name: "ProgressWhileWriting", run: testProgressWhileWriting},
		{Name: "ProgressOfMany", run: testProgressOfMany},
	}
}

// wantProgress asks for progress and reads until it has come. It expects no events.
func (s *session) wantProgress(w storage.Watcher, least uint64) {
	s.Helper()
	w.RequestProgress()
	for {
		b := s.next(w)
		if len(b.Events) > 0 {
			s.Fatalf("events %q", showEvents(b.Events))
		}
		if b.Revision >= least {
			return
		}
	}
}

// testProgressIdle checks that every progress request gets a response, even if nothing has changed
// since the last one.
func testProgressIdle(s *session) {
	s.put("other", "v", 0)
	w := s.watch(s.key("a/"), s.current())
	for range 20 {
		s.wantProgress(w, s.current())
	}
}

func testProgressOthers(s *session) {
	w := s.watch(s.key("a/"), s.current())
	for i := range 50 {
		s.wantProgress(w, s.put(fmt.Sprint("b", i), "v", 0))
	}
}

// testProgressBehindEvents checks that progress requested during the delivery of history does not
// overtake that history.
func testProgressBehindEvents(s *session) {
	start := s.current()
	h := newHistory(s.prefix)
	rev := uint64(0)
	for i := range 800 {
		rev = s.put("a", fmt.Sprint(i), rev)
		h.add(*s.kv("a", fmt.Sprint(i), rev))
	}
	target := s.put("b", "last", 0)
	h.add(*s.kv("b", "last", target))
	for range 5 {
		s.wantReliable(h, target, s.record(s.engine, s.key("a"), start, 0, nil))
	}
}

// testProgressWhileWriting requests progress at the same time as events occur.
func testProgressWhileWriting(s *session) {
	start := s.current()
	r := s.record(s.engine, s.key("a"), start, 0, nil)
	resumed := s.record(s.engine, s.key("a"), start, 3, nil)
	h := newHistory(s.prefix)
	rev := map[string]uint64{}
	for i := range 400 {
		name := []string{"a", "b"}[i%2]
		rev[name] = s.put(name, fmt.Sprint(i), rev[name])
		h.add(*s.kv(name, fmt.Sprint(i), rev[name]))
		for _, r := range []*recorder{r, resumed} {
			r.mu.Lock()
			r.w.RequestProgress()
			r.mu.Unlock()
		}
	}
	s.wantReliable(h, h.last(), r, resumed)
}

// testProgressOfMany requests progress of all watches at once, as a server does.
func testProgressOfMany(s *session) {
	watchers := make([]storage.Watcher, 60)
	for i := range watchers {
		watchers[i] = s.watch(s.key(fmt.Sprintf("kind%d/", i)), s.current())
	}
	for i := range 5 {
		rev := s.put(fmt.Sprint("x", i), "v", 0)
		for _, w := range watchers {
			w.RequestProgress()
		}
		for _, w := range watchers {
			for s.next(w).Revision < rev {
			}
		}
	}
}
