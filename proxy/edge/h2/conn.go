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
	// users counts the reading goroutine and the requests; the last one ends the connection.
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

// reader is the state of the goroutine that reads.
type reader struct {
	framer  *http2.Framer
	decoder *hpack.Decoder
	head    headers
	// large is true if the framer has a buffer for large frames.
	large bool
	// maxID is the highest stream that the client has begun. opened has a bit for each of the 64
	// streams up to it that were begun; bit 0 is maxID.
	maxID  uint32
	opened uint64
	// credit is how much useless work the client may still cause, creditSince when it was last
	// increased for elapsed time; see charge.
	credit      int
	creditSince time.Time
	// slow is the number of next requests that the reading goroutine does not serve itself.
	slow int
	// pinged is when a silent client was sent a PING.
	pinged time.Time
}

// lease determines which goroutine reads a connection. turn is odd while the reading goroutine
// serves a request; the goroutine that increments it continues to read.
type lease struct {
	turn atomic.Uint64
	// timer checks the lease while watched is set. seen is the turn of the last check, backoff the
	// number of checks in a row that found nothing slow, at most maxBackoff.
	timer    *time.Timer
	watched  atomic.Bool
	seen     atomic.Uint64
	rareness atomic.Int32
	// read continues to read.
	read func(turn uint64)
}

// streamSet are the streams of a connection.
type streamSet struct {
	streams map[uint32]*stream
	resets  resetStreams
	serving int // requests without a complete response, those of reset streams included
	// idle is since when there are no streams, idleGot how much response data the client had
	// acknowledged then.
	idle    time.Time
	idleGot int64
}

// receiveWindow is the window of a connection for data from the client.
type receiveWindow struct {
	// received is how many bytes the client may still send. consumed is how many more it will be
	// granted by the next WINDOW_UPDATE.
	received, consumed int64
}

// waitState is the state of the reading goroutine: waiting while it waits for the client,
// interrupted once another goroutine has woken it.
type waitState struct{ waiting, interrupted bool }

// goAway is the progress of ending the connection.
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

// goAwayPing is the PING after the first GOAWAY. Its acknowledgment shows that the client has
// received the GOAWAY.
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

// resetStream is a stream that the server has recently reset.
type resetStream struct {
	id   uint32
	left int64 // of the window that the client had
}

// add records a reset stream with the window that it had. If there are too many, it replaces the
// oldest.
func (r *resetStreams) add(id uint32, left int64, most int) {
	if len(r.list) < most {
		r.list = append(r.list, resetStream{id, left})
	} else {
		r.list[r.count%most] = resetStream{id, left}
	}
	r.count++
}

// find returns a stream that the server has reset, or nil.
func (r *resetStreams) find(id uint32) *resetStream {
	for i := range r.list {
		if r.list[i].id == id {
			return &r.list[i]
		}
	}
	return nil
}

// take returns the cost of n bytes of late DATA. Data that the client may have sent before it
// received the reset costs nothing, or as much as a small frame: that is no more than its window,
// and nothing after END_STREAM.
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

// flusher coordinates writing: flushing is true while a goroutine writes the queue, alone; flushed
// is signaled when it is done.
type flusher struct {
	flushing bool
	flushed  sync.Cond
}
