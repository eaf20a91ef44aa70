package websocket

import (
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/contain"
)

var errClosed = errors.New("the WebSocket is closed")

// Stream is an api.Duplex: a stream of messages with the control frames of a WebSocket: pongs, and
// close frames when either side ends.
//
// The goroutine that reads the client's bytes does not write, because it may also read those of
// other streams. Another goroutine writes all control frames that have become due, and ends. Of
// several pings only the last is answered (RFC 6455, 5.5.3). A client that sends pings and does not
// read therefore costs one goroutine, for at most the duration of a write.
type Stream struct {
	messages api.Stream
	panics   *contain.Panics

	// in, allowance and read are for Receive. allowance is for a client that has nothing to say:
	// kube-apiserver reads whatever comes, as fast as it comes.
	in        reader
	allowance *rate.Limiter
	read      bool // nothing more is

	// writing is held while writing and guards closed.
	writing sync.Mutex
	w       api.StreamWriter
	closed  bool // the last frame was written

	responses sync.WaitGroup
	// mu guards what follows.
	mu         sync.Mutex
	responding bool // a goroutine does
	stopped    bool
	pong       []byte // nil when none is due
	code       uint16 // of the close frame that is due, 0 when none is
}

// New makes a Stream of messages, each written behind its head: AppendTextHead or AppendBinaryHead.
func New(messages api.Stream, panics *contain.Panics) *Stream {
	s := &Stream{messages: messages, panics: panics, allowance: rate.NewLimiter(allowedASecond, allowedAtOnce)}
	s.in.ping = s.pinged
	return s
}

// Start implements api.Stream.
func (s *Stream) Start(w api.StreamWriter) {
	s.w = w
	if shared, ok := w.(api.SharedWriter); ok {
		s.messages.Start(&sharedWriter{(*messageWriter)(s), shared})
		return
	}
	s.messages.Start((*messageWriter)(s))
}

// Stop implements api.Stream.
func (s *Stream) Stop() {
	s.messages.Stop()
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.responses.Wait()
}

// Receive implements api.Duplex. Like the upstream, it ignores the data that the client sends, and
// bounds it instead.
func (s *Stream) Receive(p []byte) error {
	if s.read {
		return io.EOF
	}
	before := s.in.frames
	code := s.in.feed(p)
	if code == 0 && !s.allowance.AllowN(time.Now(), len(p)+(s.in.frames-before)*frameCost) {
		code = closePolicy
	}
	if code == 0 {
		return nil
	}
	s.read = true
	s.respond(func() { s.code = code })
	return io.EOF
}

// pinged has a ping answered.
func (s *Stream) pinged(payload []byte) {
	s.respond(func() { s.pong = append(appendHead(nil, opPong, len(payload)), payload...) })
}

// respond schedules the writing of the control frames that due records.
func (s *Stream) respond(due func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	due()
	if !s.responding {
		s.responding = true
		s.panics.Go(&s.responses, "stream", s.writeResponses)
	}
}

// writeResponses writes what is due until nothing is.
func (s *Stream) writeResponses() {
	for {
		s.mu.Lock()
		pong, code := s.pong, s.code
		s.pong, s.code = nil, 0
		s.responding = pong != nil || code != 0
		s.mu.Unlock()
		if pong != nil {
			_ = s.write([][]byte{pong}) // the messages learn of an error, too
		}
		if code != 0 {
			s.close(code)
		}
		if pong == nil && code == 0 {
			return
		}
	}
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

// messageWriter is the writer for messages.
type messageWriter Stream

func (m *messageWriter) WriteFrames(frames [][]byte) error { return (*Stream)(m).write(frames) }

// Close implements api.StreamWriter, but that it may block as a write does: a watch is
// ended where it is written to.
func (m *messageWriter) Close() { (*Stream)(m).close(closeNormal) }

func (m *messageWriter) Abort() { m.w.Abort() }

// sharedWriter is one over a connection that carries other streams, too.
type sharedWriter struct {
	*messageWriter
	shared api.SharedWriter
}

func (s *sharedWriter) QueueFrames(frames [][]byte) (taken bool) {
	if !s.writing.TryLock() {
		return false // an answer is being written, which may wait for the client
	}
	defer s.writing.Unlock()
	return !s.closed && s.shared.QueueFrames(frames)
}

func (s *sharedWriter) Flush() { s.shared.Flush() }

const (
	// frameCost is the cost of a frame besides its bytes.
	frameCost = 1 << 10
	// allowedAtOnce and allowedASecond are bytes: the largest frame, and 1,000 small frames a
	// second for ever.
	allowedAtOnce  = maxPayload + 1<<20
	allowedASecond = 1 << 20
)
