//go:build unix

package edgetest

import (
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// StreamFunc is a stream that calls a function in Start.
type StreamFunc struct {
	OnStart func(w api.StreamWriter)
	OnStop  func()
}

func (s *StreamFunc) Start(w api.StreamWriter) { s.OnStart(w) }

func (s *StreamFunc) Stop() {
	if s.OnStop != nil {
		s.OnStop()
	}
}

// RecordingStream records its writer and the calls of its methods.
type RecordingStream struct {
	Writer  chan api.StreamWriter
	stopped chan struct{}
	done    chan DoneCall

	mu    sync.Mutex
	stops int
}

type DoneCall struct {
	N   int64
	Err error
}

func NewRecordingStream() *RecordingStream {
	return &RecordingStream{Writer: make(chan api.StreamWriter, 1), stopped: make(chan struct{}, 2), done: make(chan DoneCall, 2)}
}

func (s *RecordingStream) Start(w api.StreamWriter) { s.Writer <- w }

func (s *RecordingStream) Stop() {
	s.mu.Lock()
	s.stops++
	s.mu.Unlock()
	s.stopped <- struct{}{}
}

func (s *RecordingStream) Response() *api.Response {
	return &api.Response{Status: 200, Header: api.Header{{Name: "Content-Type", Value: "application/json"}},
		Stream: s, Done: func(n int64, err error) { s.done <- DoneCall{n, err} }}
}

// Over waits for the end of the stream and makes sure that Stop was called once.
func (s *RecordingStream) Over(t *testing.T) DoneCall {
	t.Helper()
	Receive(t, s.stopped, "Stop")
	d := Receive(t, s.done, "Done")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stops != 1 || len(s.done) > 0 {
		t.Errorf("Stop was called %d times", s.stops)
	}
	return d
}

func Frames(s ...string) [][]byte {
	out := make([][]byte, len(s))
	for i := range s {
		out[i] = []byte(s[i])
	}
	return out
}

func StartStreams(t *testing.T, change ...func(*edge.Options)) (*Server, chan *RecordingStream) {
	streams := make(chan *RecordingStream, 1)
	ts := Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path == "/other" {
			return Text("other")
		}
		s := NewRecordingStream()
		streams <- s
		return s.Response()
	}, change...)
	return ts, streams
}

// RecordingDuplex passes on what its client sends. "enough" makes it return an error, "panic" makes
// it panic.
type RecordingDuplex struct {
	*RecordingStream
	Received chan string
}

func (d *RecordingDuplex) Receive(p []byte) error {
	s := string(p)
	if strings.Contains(s, "panic") {
		panic(s)
	}
	d.Received <- s
	if strings.HasSuffix(s, "enough") {
		return io.EOF
	}
	return nil
}

// Next waits until the client has sent want since the last call. It fails the test if the client
// sends something else.
func (d *RecordingDuplex) Next(t *testing.T, want string) {
	t.Helper()
	for got := ""; got != want; {
		got += Receive(t, d.Received, "a piece of "+want)
		if !strings.HasPrefix(want, got) {
			t.Fatalf("received %q, want %q", got, want)
		}
	}
}

func StartDuplexes(t *testing.T) (*Server, chan *RecordingDuplex) {
	duplexes := make(chan *RecordingDuplex, 1)
	return Start(t, func(context.Context, *api.Request) *api.Response {
		d := &RecordingDuplex{NewRecordingStream(), make(chan string, 100)}
		duplexes <- d
		resp := d.Response()
		resp.Status, resp.Stream = 101, d
		resp.Header = append(SwitchTo("x"), api.HeaderField{Name: "Sec-WebSocket-Protocol", Value: "sub"})
		return resp
	}), duplexes
}

// WriterTo is an io.WriterTo that calls a function.
type WriterTo func(w io.Writer) (int64, error)

func (f WriterTo) WriteTo(w io.Writer) (int64, error) { return f(w) }

// Endless writes until a write fails.
func Endless(w io.Writer) (int64, error) {
	buf := make([]byte, 64<<10)
	for {
		if _, err := w.Write(buf); err != nil {
			return 0, err
		}
	}
}

// LateStream is a stream that calls a function when it is started.
type LateStream func(api.StreamWriter)

func (s LateStream) Start(w api.StreamWriter) { s(w) }

func (LateStream) Stop() {}

func Hello(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, "hello")
	return int64(n), err
}

// SwitchTo returns the header of a 101.
func SwitchTo(accept string) api.Header {
	return api.Header{{Name: "Upgrade", Value: "websocket"}, {Name: "Connection", Value: "Upgrade"}, {Name: "Sec-WebSocket-Accept", Value: accept}}
}

// SlowList responds with a list of size bytes.
func SlowList(size int) HandlerFunc {
	list := make([]byte, size)
	return func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, BodyTo: bytes.NewReader(list), Length: int64(size), Ready: true}
	}
}

// StartUpgrades calls f for requests with an upgrade. Other requests get their body back.
func StartUpgrades(t *testing.T, f func(nc net.Conn), change ...func(*edge.Options)) (*Server, chan DoneCall) {
	done := make(chan DoneCall, 10)
	return Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path == "/large" {
			return Text(strings.Repeat("x", 2*(1<<16-1)))
		}
		if r.Upgrade == "" {
			n, err := io.Copy(io.Discard, r.Body)
			return Text(strconv.FormatInt(n, 10) + errorText(err))
		}
		return &api.Response{Status: 101, Header: SwitchTo("x"), Upgrade: f, Done: func(n int64, err error) { done <- DoneCall{n, err} }}
	}, change...), done
}

// Fuzzed responds in all possible ways: with a long body, with a tunnel of either kind, or after it
// has read the body.
func Fuzzed(_ context.Context, r *api.Request) *api.Response {
	switch {
	case r.Upgrade != "" && r.Path == "/u":
		return &api.Response{Status: 101, Header: SwitchTo(r.Upgrade), Upgrade: func(c net.Conn) { _, _ = io.Copy(c, c) }}
	case r.Upgrade != "":
		return &api.Response{Status: 101, Header: SwitchTo(r.Upgrade), Stream: &countingDuplex{}}
	case r.Path == "/b":
		return Text(strings.Repeat("x", 400_000))
	case r.Body != nil:
		_, _ = io.Copy(io.Discard, r.Body)
	}
	return Text(r.Path)
}

// countingDuplex expects a few bytes and then says goodbye.
type countingDuplex struct {
	w   api.StreamWriter
	got int
}

// Start implements api.Stream.
func (d *countingDuplex) Start(w api.StreamWriter) {
	d.w = w
	_ = w.WriteFrames([][]byte{[]byte("hello")})
}

// Stop implements api.Stream.
func (*countingDuplex) Stop() {}

// Receive implements api.Duplex.
func (d *countingDuplex) Receive(p []byte) error {
	if d.got += len(p); d.got > 8 {
		d.w.Close()
		return io.EOF
	}
	return nil
}

// ServeRejected responds to each path in a way that the transport must reject.
func ServeRejected(_ context.Context, r *api.Request) *api.Response {
	switch r.Path {
	case "/panic":
		panic("at a request")
	case "/list":
		return Text("list")
	case "/exec": // upgraded while its body is still being read
		begun := make(chan struct{})
		go func() {
			_, _ = r.Body.Read(make([]byte, 100))
			close(begun)
			_, _ = io.Copy(io.Discard, r.Body)
		}()
		<-begun
		return &api.Response{Upgrade: func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) }}
	}
	return nil
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
