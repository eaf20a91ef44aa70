package websocket

import (
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubeweir/kubeweir/api"
)

var errClosed = errors.New("the WebSocket is closed")

// Stream is an api.Duplex: a stream of messages with what a WebSocket needs beside them,
// pongs, and close frames when either side ends.
//
// Where the client's bytes are read, answers to them are written: a client that does not read them
// is not read either. Of several pings that came at once the last is answered (RFC 6455, 5.5.3).
type Stream struct {
	api.Stream // of the messages

	// in, allowance, pong and over are for Receive. allowance is for a client that has nothing to
	// say: kube-apiserver reads whatever comes, as fast as it comes.
	in        reader
	allowance *rate.Limiter
	pong      []byte // nil when none is due
	over      bool   // nothing more is read

	// writing is held while writing and guards closed.
	writing sync.Mutex
	w       api.StreamWriter
	closed  bool // the last frame was written
}

// New makes a Stream of messages, each written behind its head: AppendTextHead or AppendBinaryHead.
func New(messages api.Stream) *Stream {
	s := &Stream{Stream: messages, allowance: rate.NewLimiter(allowedASecond, allowedAtOnce)}
	s.in.ping = func(payload []byte) { s.pong = append(appendHead(nil, opPong, len(payload)), payload...) }
	return s
}

// Start implements api.Stream.
func (s *Stream) Start(w api.StreamWriter) {
	s.w = w
	s.Stream.Start((*messageWriter)(s))
}

// Receive implements api.Duplex. What the client sends is not looked at, as upstream: it
// is bounded instead.
func (s *Stream) Receive(p []byte) error {
	if s.over {
		return io.EOF
	}
	before := s.in.frames
	code := s.in.feed(p)
	if code == 0 && !s.allowance.AllowN(time.Now(), len(p)+(s.in.frames-before)*frameCost) {
		code = closePolicy
	}
	if s.pong != nil {
		_ = s.write([][]byte{s.pong}) // the messages learn of an error, too
		s.pong = nil
	}
	if code == 0 {
		return nil
	}
	s.over = true
	s.close(code)
	return io.EOF
}

// write writes whole messages.
func (s *Stream) write(frames [][]byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.closed {
		return errClosed
	}
	return s.w.WriteFrames(frames)
}

// close writes a close frame, the last one, and ends the connection. That the client
// answers with one is the transport's to wait for.
func (s *Stream) close(code uint16) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if !s.closed {
		s.closed = true
		_ = s.w.WriteFrames([][]byte{closeFrame(code)}) // without it the client sees the end
		s.w.Close()
	}
}

// messageWriter is what the messages are written to.
type messageWriter Stream

func (m *messageWriter) WriteFrames(frames [][]byte) error { return (*Stream)(m).write(frames) }

// Close implements api.StreamWriter, but that it may block as a write does: a watch is
// ended where it is written to.
func (m *messageWriter) Close() { (*Stream)(m).close(closeNormal) }

func (m *messageWriter) Abort() { m.w.Abort() }

const (
	// frameCost is what a frame costs beside its bytes.
	frameCost = 1 << 10
	// allowedAtOnce and allowedASecond are bytes: the largest frame, and 1,000 small frames a
	// second for ever.
	allowedAtOnce  = maxPayload + 1<<20
	allowedASecond = 1 << 20
)
