package websocket

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/contain"
)

// messages is a stream whose writer the test uses.
type messages struct {
	w       api.StreamWriter
	stopped bool
}

func (m *messages) Start(w api.StreamWriter) { m.w = w }
func (m *messages) Stop()                    { m.stopped = true }

// far is the far end of a connection.
type far struct {
	mu      sync.Mutex
	got     strings.Builder
	ended   string
	blocked chan struct{} // writes wait until it is closed
	waiting atomic.Int64  // so many do
}

func (f *far) WriteFrames(frames [][]byte) error {
	if f.blocked != nil {
		f.waiting.Add(1)
		<-f.blocked
		f.waiting.Add(-1)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended != "" {
		return errors.New("a write after the end")
	}
	for _, b := range frames {
		f.got.Write(b)
	}
	return nil
}

func (f *far) end(how string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended == "" {
		f.ended = how
	}
}
func (f *far) Close() { f.end("closed") }
func (f *far) Abort() { f.end("aborted") }

// take is what came, and how it ended.
func (f *far) take() string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.got.String()
	f.got.Reset()
	return s + f.ended
}

func open(t *testing.T, f *far) (*Stream, *messages) {
	t.Helper()
	m := &messages{}
	s := New(m, contain.New(nil, nil))
	s.Start(f)
	return s, m
}

func send(t *testing.T, s *Stream, what string) error {
	t.Helper()
	return s.Receive([]byte(what))
}

func TestStream(t *testing.T) {
	for _, c := range []struct{ name, sends, want string }{
		{"nothing", "", ""},
		{"ping", frame(0x89, "hello"), "\x8a\x05hello"},
		{"data and pong", frame(0x81, "hello") + frame(0x8a, "x"), ""},
		{"of several pings the last is answered", frame(0x89, "a") + frame(0x89, "b") + frame(0x89, "c"), "\x8a\x01c"},
		{"ping and close", frame(0x89, "a") + frame(0x88, "\x03\xe9"), "\x8a\x01a\x88\x02\x03\xe8closed"},
		{"not masked", "\x81\x02hi", "\x88\x02\x03\xeaclosed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := &far{blocked: make(chan struct{})}
				s, m := open(t, f)
				err := send(t, s, c.sends)
				if over := strings.HasSuffix(c.want, "closed"); over != (err != nil) {
					t.Errorf("Receive: %v", err)
				}
				close(f.blocked)
				if got := f.take(); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				s.Stop()
				if !m.stopped {
					t.Error("the messages go on")
				}
			})
		})
	}
}

// TestStreamEnds: the messages end with a close frame, behind which nothing is written.
func TestStreamEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &far{}
		s, m := open(t, f)
		if err := m.w.WriteFrames([][]byte{[]byte("\x81\x01x")}); err != nil {
			t.Fatal(err)
		}
		m.w.Close()
		m.w.Close()
		if got := f.take(); got != "\x81\x01x\x88\x02\x03\xe8closed" {
			t.Errorf("got %q", got)
		}
		if err := m.w.WriteFrames([][]byte{[]byte("\x81\x01y")}); err == nil {
			t.Error("a message behind the close frame")
		}
		if err := send(t, s, frame(0x89, "late")); err != nil {
			t.Error(err)
		}
		s.Stop()
		_ = send(t, s, frame(0x89, "later")+frame(0x88, ""))
		if got := f.take(); got != "closed" {
			t.Errorf("behind the end: %q", got)
		}
	})
	bubble.Test(t, func(t *testing.T) {
		f := &far{}
		s, m := open(t, f)
		m.w.Abort()
		if got := f.take(); got != "aborted" {
			t.Errorf("got %q", got)
		}
		s.Stop()
	})
}

// TestPingsAreBounded: a client that asks and does not read costs one goroutine and one
// pong, until its write ends; what it may send at all is bounded, too.
func TestPingsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &far{blocked: make(chan struct{})}
		s, _ := open(t, f)
		n := 0
		for ; send(t, s, frame(0x89, fmt.Sprint(n))) == nil; n++ {
			time.Sleep(time.Microsecond)
		}
		synctest.Wait()
		if waiting := f.waiting.Load(); waiting != 1 {
			t.Errorf("%d goroutines wait for the client", waiting)
		}
		if most := allowedAtOnce/frameCost + 100; n < 1000 || n > most {
			t.Errorf("%d pings were read, at most %d are allowed", n, most)
		}
		close(f.blocked)
		if got, want := f.take(), "\x8a\x010\x8a\x05"+fmt.Sprint(n)+"\x88\x02\x03\xf0closed"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		s.Stop()
	})
}

func TestAllowance(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		size  int
		pause time.Duration
		n     int // 0: for ever
	}{
		"the largest frame":        {maxPayload, time.Minute, 0},
		"a thousand frames":        {frameCost, time.Millisecond, 0},
		"large frames":             {maxPayload, time.Second, 2},
		"all at once":              {512, 0, allowedAtOnce/512 + 1},
		"a megabyte and a half":    {3 << 9, time.Millisecond, 60_000},
		"from time to time a word": {1100, 20 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(nil, nil).allowance
			at, n := now, 0
			for n < 200_000 {
				n++
				if !a.AllowN(at, c.size) {
					break
				}
				at = at.Add(c.pause)
			}
			if c.n == 0 && n < 200_000 || c.n > 0 && (n < c.n*9/10 || n > c.n*12/10) {
				t.Errorf("%d were allowed, want %d", n, c.n)
			}
		})
	}
}

// sharedEnd is a transport whose connection carries other streams, too.
type sharedEnd struct {
	api.StreamWriter
	queued  [][]byte
	flushed int
}

func (s *sharedEnd) QueueFrames(frames [][]byte) bool {
	s.queued = append(s.queued, frames...)
	return true
}

func (s *sharedEnd) Flush() { s.flushed++ }

func (*sharedEnd) WriteFrames([][]byte) error { return nil }
func (*sharedEnd) Close()                     {}

// startedWith keeps its writer.
type startedWith struct{ w api.StreamWriter }

func (s *startedWith) Start(w api.StreamWriter) { s.w = w }
func (*startedWith) Stop()                      {}

// TestSharedWriter: messages can leave with those of others, until the last frame.
func TestSharedWriter(t *testing.T) {
	messages, end := &startedWith{}, &sharedEnd{}
	s := New(messages, nil)
	s.Start(end)
	w := messages.w.(api.SharedWriter)
	if !w.QueueFrames([][]byte{[]byte("a")}) || len(end.queued) != 1 {
		t.Error("not queued")
	}
	if w.Flush(); end.flushed != 1 {
		t.Error("not flushed")
	}
	s.writing.Lock()
	if w.QueueFrames([][]byte{[]byte("b")}) {
		t.Error("queued beside an answer")
	}
	s.writing.Unlock()
	if w.Close(); w.QueueFrames([][]byte{[]byte("c")}) || len(end.queued) != 1 {
		t.Error("queued behind the close frame")
	}
	s.Stop()
}
