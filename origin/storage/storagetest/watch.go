package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kubeweir/kubeweir/origin/storage"
)

func watchCases() []Case {
	return []Case{
		{Name: "WatchFromCurrent", run: testWatchFromCurrent},
		{Name: "WatchFromFuture", run: testWatchFromFuture},
		{Name: "WatchEveryStart", run: testWatchEveryStart},
		{Name: "WatchPrefix", run: testWatchPrefix},
		{Name: "WatchBehindIsComplete", run: testWatchBehind},
		{Name: "WatchLargeValues", run: testWatchLargeValues},
		{Name: "WatchValuesAreNotReused", run: testWatchValuesNotReused},
		{Name: "WatchManyOfOnePrefix", run: testWatchMany},
		{Name: "WatchNextCancelled", run: testWatchNextCancelled},
		{Name: "WatchClose", run: testWatchClose},
	}
}

// story changes three keys in every way and returns the events it must make.
func (s *session) story() []storage.Event {
	s.Helper()
	a1 := s.put("a", "one", 0)
	b1 := s.put("b", "", 0)
	a2 := s.put("a", "two", a1)
	b2 := s.delete("b", b1)
	b3 := s.put("b", "again", 0)
	a3 := s.put("a", "", a2)
	a4 := s.delete("a", a3)
	return []storage.Event{
		s.created("a", "one", a1),
		s.created("b", "", b1),
		s.updated("a", "two", a2, s.kv("a", "one", a1)),
		s.deleted("b", b2, s.kv("b", "", b1)),
		s.created("b", "again", b3),
		s.updated("a", "", a3, s.kv("a", "two", a2)),
		s.deleted("a", a4, s.kv("a", "", a3)),
	}
}

func testWatchFromCurrent(s *session) {
	s.put("old", "x", 0)
	w := s.watch(s.prefix, s.current())
	s.wantEvents(w, s.story()...)
}

// testWatchFromFuture checks that changes before the start of a watch are neither delivered nor an
// error.
func testWatchFromFuture(s *session) {
	rev := s.put("a", "v", 0)
	start := s.current() + 5
	w := s.watch(s.prefix, start)
	never := s.watch(s.prefix, 1<<64-1)
	var want []storage.Event
	for len(want) < 3 {
		next := s.put("a", "v", rev)
		if next > start {
			want = append(want, s.updated("a", "v", next, s.kv("a", "v", rev)))
		}
		rev = next
	}
	s.wantEvents(w, want...)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if b, err := never.Next(ctx); err == nil && len(b.Events) > 0 {
		s.Errorf("a watch from the end of time delivered %v", showEvents(b.Events))
	}
}

// testWatchEveryStart checks that a watch may start after any event.
func testWatchEveryStart(s *session) {
	start := s.current()
	want := s.story()
	s.wantEvents(s.watch(s.prefix, start), want...)
	for i, ev := range want[:len(want)-1] {
		s.wantEvents(s.watch(s.prefix, ev.KV.Revision), want[i+1:]...)
	}
}

func testWatchPrefix(s *session) {
	start := s.current()
	live := s.watch(s.key("a/b/"), start)
	other := s.put("a/bc", "x", 0)
	s.put("a/b", "x", 0)
	first := s.put("a/b/c", "v", 0)
	s.put("a/bc/d", "x", 0)
	s.delete("a/bc", other)
	s.put("a/c", "x", 0)
	s.put("a/a", "x", 0)
	second := s.put("a/b/", "v", 0)
	want := []storage.Event{s.created("a/b/c", "v", first), s.created("a/b/", "v", second)}
	s.wantEvents(live, want...)
	s.wantEvents(s.watch(s.key("a/b/"), start), want...)
}

// testWatchBehind checks that a watcher that does not read gets everything later, in order.
func testWatchBehind(s *session) {
	w := s.watch(s.prefix, s.current())
	var want []storage.Event
	var last *storage.KeyValue
	value := strings.Repeat("0123456789abcdef", 512)
	for i := range 1500 {
		ev := s.write("a", fmt.Sprint(i, value), last)
		want, last = append(want, ev), &ev.KV
	}
	s.wantEvents(w, want...)
}

// testWatchLargeValues delivers events whose total size exceeds the message limit of any transport.
func testWatchLargeValues(s *session) {
	start := s.current()
	w := s.watch(s.prefix, start)
	value := strings.Repeat("x", 1<<20)
	var want []storage.Event
	for i := range 8 {
		name := fmt.Sprint("k", i%4)
		want = append(want, s.write(name, value, s.get(name)))
	}
	s.wantEvents(w, want...)
	s.wantEvents(s.watch(s.prefix, start), want...)
}

// testWatchValuesNotReused checks that the values of a batch remain unchanged after the next call.
func testWatchValuesNotReused(s *session) {
	w := s.watch(s.prefix, s.current())
	type pair struct{ was, is []byte }
	var all []pair
	rev := uint64(0)
	for i := range 200 {
		rev = s.put("a", fmt.Sprint("value ", i), rev)
		for seen := false; !seen; {
			for _, ev := range s.next(w).Events {
				all = append(all, pair{bytes.Clone(ev.KV.Value), ev.KV.Value})
				if ev.Previous != nil {
					all = append(all, pair{bytes.Clone(ev.Previous.Value), ev.Previous.Value})
				}
				seen = ev.KV.Revision == rev
			}
		}
	}
	for _, k := range all {
		if !bytes.Equal(k.was, k.is) {
			s.Fatalf("a value became %q, it was %q", k.is, k.was)
		}
	}
}

func testWatchMany(s *session) {
	start := s.current()
	watchers := make([]storage.Watcher, 40)
	for i := range watchers {
		watchers[i] = s.watch(s.prefix, start)
	}
	for _, w := range watchers[:10] {
		w.Close()
	}
	want := s.story()
	for _, w := range watchers[10:] {
		s.wantEvents(w, want...)
	}
}

// testWatchNextCancelled checks that Next returns when its context ends, without waiting for an
// event.
func testWatchNextCancelled(s *session) {
	w := s.watch(s.prefix, s.put("a", "v", 0))
	for _, cancelFirst := range []bool{false, true} {
		ctx, cancel := context.WithCancel(s.ctx)
		if cancelFirst {
			cancel()
		}
		ended := make(chan error, 1)
		go func() { ended <- lastError(ctx, w) }()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !(cancelFirst && errors.Is(err, storage.ErrClosed)) {
			s.Errorf("Next: %v, want context.Canceled", err)
		}
		w = s.watch(s.prefix, s.current()) // errors are final
	}
}

// lastError reads a watch until it fails; batches may come before.
func lastError(ctx context.Context, w storage.Watcher) error {
	for {
		if _, err := w.Next(ctx); err != nil {
			return err
		}
	}
}

func testWatchClose(s *session) {
	for _, waiting := range []bool{false, true} {
		w := s.watch(s.prefix, s.current())
		ended := make(chan error, 1)
		next := func() { ended <- lastError(s.ctx, w) }
		if waiting {
			go next()
		}
		w.Close()
		if !waiting {
			go next()
		}
		if err := <-ended; !errors.Is(err, storage.ErrClosed) {
			s.Errorf("Next of a closed watcher: %v, want ErrClosed", err)
		}
		w.Close()
		w.RequestProgress()
		if _, err := w.Next(s.ctx); !errors.Is(err, storage.ErrClosed) {
			s.Errorf("Next of a closed watcher: %v, want ErrClosed", err)
		}
	}
}
