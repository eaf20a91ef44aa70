package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/origin/storage"
)

func lifecycleCases() []Case {
	return []Case{
		{Name: "CancelledContext", run: testCancelled},
		{Name: "Deadline", run: testDeadline},
		{Name: "Closed", run: testClosed},
		{Name: "CloseInUse", run: testCloseInUse},
	}
}

// calls are all that take a context.
func (s *session) calls(e storage.Engine) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Put": func(ctx context.Context) error {
			_, err := e.Put(ctx, s.key("new"), []byte("v"), storage.Precondition{}, 0)
			return err
		},
		"Put with a time to live": func(ctx context.Context) error {
			_, err := e.Put(ctx, s.key("newer"), []byte("v"), storage.Precondition{}, time.Hour)
			return err
		},
		"Delete": func(ctx context.Context) error {
			_, err := e.Delete(ctx, s.key("a"), storage.Precondition{Revision: 1})
			return err
		},
		"Range": func(ctx context.Context) error {
			_, err := e.Range(ctx, storage.RangeOptions{Prefix: s.prefix})
			return err
		},
		"CurrentRevision": func(ctx context.Context) error {
			_, err := e.CurrentRevision(ctx)
			return err
		},
		"Compact": func(ctx context.Context) error { return e.Compact(ctx, 1) },
	}
}

// wantEnded expects every call to say that its context has ended, and the engine to be as it was.
func (s *session) wantEnded(ctx context.Context, want error) (rev uint64) {
	s.Helper()
	rev = s.put("a", "v", 0)
	for name, call := range s.calls(s.engine) {
		if err := call(ctx); !errors.Is(err, want) {
			s.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	s.mustHold("a", "v", rev)
	return rev
}

func testCancelled(s *session) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	s.put("a", "w", s.wantEnded(ctx, context.Canceled))
}

func testDeadline(s *session) {
	ctx, cancel := context.WithDeadline(s.ctx, time.Now().Add(-time.Second))
	defer cancel()
	rev := s.wantEnded(ctx, context.DeadlineExceeded)
	// Deadlines in the middle of things, of all lengths: a change happened or not, and the key says
	// which.
	for i := range 200 {
		ctx, cancel := context.WithTimeout(s.ctx, time.Duration(i)*10*time.Microsecond)
		value := fmt.Sprint(i)
		now, err := s.engine.Put(ctx, s.key("a"), []byte(value), storage.Precondition{Revision: rev}, 0)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			s.Fatal(err)
		}
		kv, happened := s.settled("a", rev)
		if err == nil && (!happened || kv.Revision != now) || happened && string(kv.Value) != value {
			s.Fatalf("put %q at %d: %d, %v; now there is %s", value, rev, now, err, showPointer(kv))
		}
		rev = kv.Revision
	}
}

// settled reports whether a change of a key that was at a revision has happened. If not, it makes
// another change, so that the first cannot happen later.
func (s *session) settled(name string, rev uint64) (kv *storage.KeyValue, happened bool) {
	s.Helper()
	for {
		kv := s.get(name)
		if kv.Revision != rev {
			return kv, true
		}
		now, err := s.engine.Put(s.ctx, s.key(name), kv.Value, storage.Precondition{Revision: rev}, 0)
		var conflict *storage.ConflictError
		switch {
		case err == nil:
			return &storage.KeyValue{Key: kv.Key, Value: kv.Value, Revision: now}, false
		case !errors.As(err, &conflict):
			s.Fatal(err)
		}
	}
}

func testClosed(s *session) {
	s.put("a", "v", 0)
	w := s.watch(s.prefix, s.current())
	if err := s.engine.Close(); err != nil {
		s.Fatalf("close: %v", err)
	}
	for name, call := range s.calls(s.engine) {
		if err := call(s.ctx); !errors.Is(err, storage.ErrClosed) {
			s.Errorf("%s after Close: %v, want ErrClosed", name, err)
		}
	}
	if _, err := s.engine.Watch(s.ctx, storage.WatchOptions{Prefix: s.prefix}); !errors.Is(err, storage.ErrClosed) {
		s.Errorf("Watch after Close: %v, want ErrClosed", err)
	}
	if err := lastError(s.ctx, w); !errors.Is(err, storage.ErrClosed) {
		s.Errorf("Next after Close: %v, want ErrClosed", err)
	}
	w.RequestProgress()
	w.Close()
}

// testCloseInUse checks that Close does not wait for calls that wait for it, and that all of them
// return.
func testCloseInUse(s *session) {
	start := s.current()
	const clients = 8
	var made atomic.Int64
	enough := make(chan struct{})
	ended := make(chan error, 4*clients)
	for i := range clients {
		key := s.key(fmt.Sprint("k", i))
		s.watch(s.prefix, start) // not read
		w, rev, calls := s.watch(s.prefix, start), uint64(0), s.calls(s.engine)
		for _, call := range []func(context.Context) error{calls["Range"], calls["CurrentRevision"],
			func(ctx context.Context) error {
				_, err := w.Next(ctx)
				w.RequestProgress()
				return err
			},
			func(ctx context.Context) (err error) {
				rev, err = s.engine.Put(ctx, key, []byte("v"), storage.Precondition{Revision: rev}, 0)
				if err == nil && made.Add(1) == 100 {
					close(enough)
				}
				return err
			},
		} {
			go func() {
				err := call(s.ctx)
				for err == nil {
					err = call(s.ctx)
				}
				ended <- err
			}()
		}
	}
	select {
	case <-enough:
	case <-s.ctx.Done():
		s.Fatal("too slow")
	}
	if err := s.engine.Close(); err != nil {
		s.Errorf("close: %v", err)
	}
	for range 4 * clients {
		if err := <-ended; !errors.Is(err, storage.ErrClosed) {
			s.Errorf("a call during Close: %v, want ErrClosed", err)
		}
	}
}
