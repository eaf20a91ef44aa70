package h2

import (
	"errors"
	"time"

	"golang.org/x/net/http2"
)

// goAwayWait is how long a client may take to learn of a GOAWAY before requests that it
// still begins are not taken any more.
const goAwayWait = time.Second

// How far the end of a connection is.
type goAway uint8

const (
	goAwayNone  goAway = iota
	goAwayFirst        // told with the highest stream there may be, as more may be on their way
	goAwayFinal        // told with the last stream that is served
)

// goAwayPing is the PING that follows the first GOAWAY: its acknowledgement tells that
// the client has seen that.
var goAwayPing = [8]byte{'g', 'o', ' ', 'a', 'w', 'a', 'y'} //nolint:gochecknoglobals // a constant

var errGoneAway = errors.New("the connection was told to go away, and has no requests")

// shutdown lets the client finish what it has begun, and what it begins before it
// knows.
func (h *conn) shutdown() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.going != goAwayNone || h.err != nil {
		return
	}
	h.going, h.goAwayAt = goAwayFirst, time.Now()
	h.appendGoAway(maxWindow, http2.ErrCodeNo)
	h.appendPing(false, goAwayPing)
	h.flushSoonLocked()
	h.wakeReaderLocked()
}

// goAwayFinalLocked tells the client which streams were the last. It is for the goroutine
// that reads.
func (h *conn) goAwayFinalLocked() {
	if h.going != goAwayFinal {
		h.going, h.lastID = goAwayFinal, h.maxID
		h.appendGoAway(h.lastID, http2.ErrCodeNo)
	}
}

// close ends the connection for the goroutine that reads.
func (h *conn) close(err error) {
	says, linger := false, h.c.Options.LingerTimeout
	var ce http2.ConnectionError
	switch {
	case errors.Is(err, errGoneAway):
		// The client may still read what is on its way, and say so: it gets the time of the answer to a PING.
		says = true
		h.mu.Lock()
		linger = max(linger, h.c.Options.PingTimeout+h.timeForLocked())
		h.mu.Unlock()
	case errors.As(err, &ce):
		says = true
		h.mu.Lock()
		if h.going != goAwayFinal {
			h.lastID = h.maxID
		}
		if h.err == nil {
			h.appendGoAway(h.lastID, http2.ErrCode(ce))
			h.ending = err
		}
		h.mu.Unlock()
	}
	if says {
		h.flushAll()
	}
	h.fail(err)
	if says {
		h.c.Linger(linger)
		h.c.Abort() // requests may go on for a while
	}
	h.leaseTimer.Stop()
	h.release()
}

// flushAll writes what is queued. After an error nothing more of the streams is.
func (h *conn) flushAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.err == nil && (h.flushing || len(h.pending) > 0) {
		if h.flushing {
			h.flushed.Wait()
		} else {
			h.flushRoundLocked(true)
		}
	}
}

// fail ends everything on the connection. Only the first error counts.
func (h *conn) fail(err error) {
	if err == nil {
		err = errClientLeft
	}
	h.mu.Lock()
	first := h.err == nil
	if first {
		h.err = err
		h.wakeReaderLocked()
	}
	streams := make([]*stream, 0, len(h.streams))
	for _, st := range h.streams {
		streams = append(streams, st)
	}
	if first && !errors.Is(err, errGoneAway) {
		var ce http2.ConnectionError
		if !errors.As(err, &ce) {
			h.c.Abort()
		}
	}
	h.discardLocked()
	h.mu.Unlock()
	for _, st := range streams {
		st.abandon(err)
	}
}

// release is called by the last act of every user of the connection.
func (h *conn) release() {
	if h.users.Add(-1) == 0 {
		h.holdBlock(0)
		h.mu.Lock()
		h.discardLocked()
		h.mu.Unlock()
		h.c.End()
	}
}
