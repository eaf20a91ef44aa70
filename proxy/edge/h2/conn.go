package h2

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

// conn is an HTTP/2 connection (RFC 9113).
//
// One goroutine at a time reads it. It serves a request without a body itself, as most
// are answered at once. Before it waits for the client, or when serving takes longer
// than takeOverAfter, another goroutine goes on reading and it becomes the request's own:
//
//	read --> request --> serve --> read on
//	                       |
//	                       +--> waits: a fresh goroutine reads on
//
// Outgoing data is queued as frames. A goroutine that queues frames while no other goroutine
// writes becomes the writer, so that frames of many streams leave together: see flushLocked. Only
// the goroutine that reads touches reader.
type conn struct {
	*edge.Conn
	reader
	lease lease
	// users are the goroutine that reads and the requests; the last one ends the connection.
	users atomic.Int32

	mu sync.Mutex
	// The fields below are guarded by mu.

	queue
	flusher flusher
	streamSet
	receiveWindow
	wait   waitState
	goAway goAway
	err    error // why the connection is over
	ending error // why it will be when what is queued was sent
}

// reader is what the goroutine that reads knows.
type reader struct {
	framer  *http2.Framer
	decoder *hpack.Decoder
	head    headers
	// large is true if the framer has a buffer for large frames.
	large bool
	// maxID is the highest stream that the client has begun, opened tells which of the
	// 64 up to it were: bit 0 is maxID.
	maxID  uint32
	opened uint64
	// credit is what the client may still have the server do for nothing, creditSince when it was
	// last given for time: see charge.
	credit      int
	creditSince time.Time
	// slow counts the requests down that are not served by the goroutine that reads.
	slow int
	// pinged is when a client that is silent was sent a PING.
	pinged time.Time
}

// lease determines which goroutine reads a connection: turn is odd while that serves a request; whoever
// increments it then reads on.
type lease struct {
	turn atomic.Uint64
	// timer checks the lease while watched is set; seen is the turn that it saw last, calm how
	// many checks in a row found nothing slow, maxBackoff at most.
	timer    *time.Timer
	watched  atomic.Bool
	seen     atomic.Uint64
	rareness atomic.Int32
	// read goes on reading.
	read func(turn uint64)
}

// streamSet are the streams of a connection.
type streamSet struct {
	streams map[uint32]*stream
	resets  resetStreams
	serving int // requests without a complete response, those of reset streams included
	// idle is since when there are no streams, idleGot what the client had of responses then.
	idle    time.Time
	idleGot int64
}

// receiveWindow is the window of a connection for what the client sends.
type receiveWindow struct {
	// received is how much the client may still send, consumed what it may send again
	// but has not been told of.
	received, consumed int64
}

// waitState is how the goroutine that reads waits for the client: waiting while it does,
// interrupted when somebody has made it stop.
type waitState struct{ waiting, interrupted bool }

// goAway is how far the end of a connection is.
type goAway struct {
	state  goAwayState
	at     time.Time // of the first GOAWAY
	lastID uint32    // the last stream that is served, once that was told
}

type goAwayState uint8

const (
	goAwayNone  goAwayState = iota
	goAwayFirst             // sent with the highest stream there may be, as more may be on their way
	goAwayFinal             // sent with the last stream that is served
)

// goAwayPing is the PING that follows the first GOAWAY: its acknowledgement tells that
// the client has seen that.
var goAwayPing = [8]byte{'g', 'o', ' ', 'a', 'w', 'a', 'y'} //nolint:gochecknoglobals // a constant

var (
	errClientLeft = errors.New("the client has left")
	errProtocol   = errors.New("the client breaks the rules of HTTP/2")
	errGoneAway   = errors.New("the connection was told to go away, and has no requests")
)

// resetStreams are the streams that the server reset last. The server drops the data that the
// client had sent before it knew of the reset. At most MaxStreams resets are unknown to the client,
// because it could not have begun the next stream.
type resetStreams struct {
	list  []resetStream
	count int
}

// resetStream is a stream that was reset here, a moment ago.
type resetStream struct {
	id   uint32
	left int64 // of the window that the client had
}

// add notes a stream with the window that it had, in place of the oldest if there are most.
func (r *resetStreams) add(id uint32, left int64, most int) {
	if len(r.list) < most {
		r.list = append(r.list, resetStream{id, left})
	} else {
		r.list[r.count%most] = resetStream{id, left}
	}
	r.count++
}

// find returns a stream that was reset here, nil for others.
func (r *resetStreams) find(id uint32) *resetStream {
	for i := range r.list {
		if r.list[i].id == id {
			return &r.list[i]
		}
	}
	return nil
}

// take says what DATA of n bytes costs that comes late: nothing, or that of a small frame,
// for what the client may have sent before it knew of the reset. That is no more than its
// window, and nothing behind its end.
func (r *resetStream) take(n int64, end bool) (cost int) {
	if r.left -= n; r.left < 0 {
		return resetCost
	}
	if end {
		r.left = 0
	}
	if n < updateBytes {
		return frameCost
	}
	return 0
}

// flusher is whoever writes what is queued: flushing says that somebody does, alone; flushed tells
// when that is over.
type flusher struct {
	flushing bool
	flushed  sync.Cond
}
