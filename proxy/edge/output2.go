package edge

import (
	"encoding/binary"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	// queueLimit is how many bytes of frames are queued before those who have more
	// wait, and so what is written at once: eight full TLS records.
	queueLimit = 8 * smallBuffer
	// quantum is how much of a response is queued while others wait for their turn.
	quantum = queueLimit / 2
	// askAfter is how much of what a client has not told of is sent before it is asked.
	askAfter = writeSlice / 2
	// leastData is the least room worth the head of a DATA frame of more than that.
	leastData = 512
)

// queue is what is to be sent on an HTTP/2 connection: frames, laid out in buffers
// of the size of a TLS record, each of which becomes one. Whoever queues something
// and finds nobody writing writes it, with all that others have queued meanwhile.
// Cached bytes are copied once, into a record.
//
// Its methods whose names end in Locked are for who holds http2Conn.mu, which guards
// all of it.
type queue struct {
	h *http2Conn

	pending []*buffer
	spare   []*buffer // the slice of what was written last
	queued  int       // bytes of pending
	// flushing says that somebody writes, alone; flushed tells when that is over.
	flushing bool
	flushed  sync.Cond
	// now is for who writes and must not wait for the client.
	now nowait

	// window is what the client takes over all streams, initial that of a new one.
	window, initial int64
	// most is the largest payload that the client takes.
	most int
	// sent counts the bytes of DATA that were queued. The client is known to have those
	// that it told of in window updates, and those before the last PING that it answered.
	// asked is sent when such a PING was queued last.
	sent, told, answered, asked int64
	// inLine are the streams that wait for their turn, because the queue was full or the
	// connection's window closed. One that is called leaves the line; whatever else wakes
	// it does not cost it its place.
	inLine []*stream2
	// noTable is set when the client is to be told that its table for headers stays
	// empty.
	noTable bool
	// earned is the client's for requests that were answered, updates how many window
	// updates it may send for data that it got: see effort.
	earned, updates int
}

func (q *queue) init(h *http2Conn) {
	q.h = h
	q.window, q.initial, q.most, q.noTable = initialWindow, initialWindow, frameSize, true
	q.flushed.L = &h.mu
	q.now.init(socketOf(h.c.raw))
}

// tailLocked is a buffer with room for n bytes.
func (q *queue) tailLocked(n int) *buffer {
	if k := len(q.pending); k > 0 {
		if b := q.pending[k-1]; cap(b.b)-len(b.b) >= n {
			return b
		}
	}
	b := q.h.c.getBuffer(smallBuffer)
	q.pending = append(q.pending, b)
	return b
}

// appendFrame queues a frame with a small payload, whose room it returns.
func (q *queue) appendFrame(kind http2.FrameType, flags http2.Flags, id uint32, size int) []byte {
	b := q.tailLocked(frameHead + size)
	b.b = appendFrameHead(b.b, kind, flags, id, size)
	n := len(b.b)
	b.b = b.b[:n+size]
	q.queued += frameHead + size
	return b.b[n:]
}

func appendFrameHead(dst []byte, kind http2.FrameType, flags http2.Flags, id uint32, size int) []byte {
	return append(dst, byte(size>>16), byte(size>>8), byte(size), byte(kind), byte(flags), //nolint:gosec // the bytes of a number
		byte(id>>24), byte(id>>16), byte(id>>8), byte(id)) //nolint:gosec // likewise
}

func (q *queue) appendPing(ack bool, data [8]byte) {
	flags := http2.Flags(0)
	if ack {
		flags = http2.FlagPingAck
	}
	copy(q.appendFrame(http2.FramePing, flags, 0, len(data)), data[:])
}

func (q *queue) appendGoAway(last uint32, code http2.ErrCode) {
	p := q.appendFrame(http2.FrameGoAway, 0, 0, 8)
	binary.BigEndian.PutUint32(p, last)
	binary.BigEndian.PutUint32(p[4:], uint32(code))
}

func (q *queue) appendReset(id uint32, code http2.ErrCode) {
	binary.BigEndian.PutUint32(q.appendFrame(http2.FrameRSTStream, 0, id, 4), uint32(code))
}

func (q *queue) appendWindowUpdate(id uint32, n int64) {
	binary.BigEndian.PutUint32(q.appendFrame(http2.FrameWindowUpdate, 0, id, 4), uint32(n)) //nolint:gosec // at most uploadBuffers
}

func (q *queue) appendSettingsAck() { q.appendFrame(http2.FrameSettings, http2.FlagSettingsAck, 0, 0) }

func (q *queue) appendSettings(settings ...http2.Setting) {
	p := q.appendFrame(http2.FrameSettings, 0, 0, 6*len(settings))
	for _, s := range settings {
		binary.BigEndian.PutUint16(p, uint16(s.ID))
		binary.BigEndian.PutUint32(p[2:], s.Val)
		p = p[6:]
	}
}

// appendHeaders queues a header, in as many frames as it takes.
func (q *queue) appendHeaders(id uint32, block []byte, end bool) {
	table := 0
	if q.noTable {
		table = 1
	}
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if end {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(block), smallBuffer-frameHead-table)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		p := q.appendFrame(kind, flags, id, n+table)
		if table > 0 {
			// What is sent needs no dynamic table. A client that has just made its smaller
			// expects to be told that (RFC 7541, 4.2).
			p[0], p, q.noTable, table = noDynamicTable, p[1:], false, 0
		}
		copy(p, block[:n])
		if block = block[n:]; len(block) == 0 {
			return
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// pieces2 are bytes in several slices that are sent as if they were in one.
type pieces2 struct {
	list [][]byte
	at   int // in list[0]
	left int // over all
}

// read copies the next len(p) bytes.
func (s *pieces2) read(p []byte) {
	s.left -= len(p)
	for len(p) > 0 {
		n := copy(p, s.list[0][s.at:])
		p = p[n:]
		if s.at += n; s.at == len(s.list[0]) {
			s.list, s.at = s.list[1:], 0
		}
	}
}

// appendDataLocked queues DATA frames with as much of s as the windows, the queue and
// fairness allow. end ends the stream with the last of it.
func (q *queue) appendDataLocked(st *stream2, s *pieces2, end bool) {
	turn := queueLimit
	if len(q.inLine) > 0 {
		turn = quantum
	}
	for s.left > 0 || end {
		n := int(min(int64(s.left), q.window, st.window))
		n = max(0, min(n, q.roomLocked(), turn, q.most))
		if n == 0 && s.left > 0 {
			return
		}
		q.askLocked()
		b := q.tailLocked(frameHead + min(n, leastData))
		n = min(n, cap(b.b)-len(b.b)-frameHead)
		flags := http2.Flags(0)
		if end && n == s.left {
			flags, end = http2.FlagDataEndStream, false
			st.endedLocked()
		}
		b.b = appendFrameHead(b.b, http2.FrameData, flags, st.id, n)
		s.read(b.b[len(b.b) : len(b.b)+n])
		b.b = b.b[:len(b.b)+n]
		q.queued += frameHead + n
		q.window -= int64(n)
		q.sent += int64(n)
		st.window -= int64(n)
		turn -= n
		q.updates += 1 + n/updateBytes
	}
}

// roomLocked is how much more may be queued. The more all connections hold, the less.
func (q *queue) roomLocked() int {
	limit := queueLimit
	switch held := q.h.c.srv.buffers.held.Load(); {
	case held > largeAllowed:
		limit = smallBuffer
	case held > recordsAllowed:
		limit = queueLimit / 2
	}
	return limit - q.queued
}

// askLocked asks a client that tells of what it has in large steps, so that one on a slow
// line, who answers again and again, is told from one who waits for nothing.
func (q *queue) askLocked() {
	if q.sent-max(q.asked, q.gotLocked()) < askAfter {
		return
	}
	q.asked = q.sent
	q.updates++ // the answer
	q.appendPing(false, sentPing(q.sent))
}

// gotLocked is how much of what was sent the client is known to have.
func (q *queue) gotLocked() int64 { return max(q.told, q.answered) }

// behindLocked is for how much longer than timeout an answer may take that the client
// gives only when it has what was sent before. It is asked often: it is not silent for long.
func (q *queue) behindLocked() time.Duration {
	return time.Duration(min(q.sent-q.gotLocked(), writeSlice)) * q.h.c.srv.o.WriteTimeout / writeSlice
}

// callNextLocked lets the next in line go on, if it could.
func (q *queue) callNextLocked() {
	if len(q.inLine) == 0 || q.window <= 0 || q.roomLocked() <= 0 {
		return
	}
	st := q.inLine[0]
	n := copy(q.inLine, q.inLine[1:])
	q.inLine[n] = nil
	q.inLine = q.inLine[:n]
	st.inLine, st.called = false, true
	st.wakeLocked()
}

// firstLocked says whether no other stream is before this one.
func (q *queue) firstLocked(st *stream2) bool {
	return st.called || len(q.inLine) == 0 || q.inLine[0] == st
}

// aloneLocked says whether no other stream is in line.
func (q *queue) aloneLocked(st *stream2) bool {
	return len(q.inLine) == 0 || len(q.inLine) == 1 && st.inLine
}

// lineUpLocked has a stream wait for its turn. One that was called and could send nothing is
// the next again. That it has no window of its own is not for the line.
func (q *queue) lineUpLocked(st *stream2) {
	called := st.called
	st.called = false
	switch {
	case st.window <= 0 || st.inLine:
		return
	case called:
		q.inLine = slices.Insert(q.inLine, 0, st)
	default:
		q.inLine = append(q.inLine, st)
	}
	st.inLine = true
}

// leaveLineLocked is for a stream that had its turn, or waits no more.
func (q *queue) leaveLineLocked(st *stream2) {
	st.called = false
	if st.inLine {
		st.inLine = false
		q.inLine = slices.DeleteFunc(q.inLine, func(other *stream2) bool { return other == st })
	}
}

// flushRoundLocked writes what is queued, while mu is not held. Nobody else writes. If
// it is not to wait for the client, what that does not take is handed over.
func (q *queue) flushRoundLocked(wait bool) {
	pending := q.pending
	q.pending, q.queued, q.flushing = q.spare[:0], 0, true
	q.spare = nil
	q.callNextLocked()
	q.h.mu.Unlock()
	rest, err := q.write(pending, wait)
	for _, b := range pending {
		q.h.c.srv.buffers.put(b)
	}
	if err != nil {
		q.h.fail(err)
	}
	q.h.mu.Lock()
	clear(pending)
	q.spare = pending[:0]
	if rest > 0 && err == nil && q.h.err == nil { // else the connection may be over for all
		q.handOverLocked(rest)
		return
	}
	q.roundOverLocked()
}

// roundOverLocked lets others write.
func (q *queue) roundOverLocked() {
	q.flushing = false
	if q.h.err != nil {
		q.discardLocked()
	}
	q.callNextLocked()
	q.flushed.Broadcast()
}

// flushLocked sees to it that what is queued is written: here, unless somebody does
// already. Who must not wait for the client leaves what it does not take at once to
// another goroutine.
func (q *queue) flushLocked(wait bool) {
	if q.flushing || len(q.pending) == 0 || q.h.err != nil {
		return
	}
	if wait || q.now.raw != nil {
		q.flushRoundLocked(wait)
	}
	q.flushSoonLocked() // what others have queued meanwhile
}

// flushSoonLocked sees to it that what is queued is written, and not here.
func (q *queue) flushSoonLocked() {
	if q.flushing || len(q.pending) == 0 || q.h.err != nil {
		return
	}
	q.handOverLocked(0)
}

// handOverLocked has a goroutine write until nothing is queued: first the rest bytes
// that the client has not taken. The connection does not end before the goroutine,
// which waits for the client no longer than the write timeout.
func (q *queue) handOverLocked(rest int) {
	q.flushing = true // from here on
	h, buffers, account := q.h, &q.h.c.srv.buffers, q.h.c.holder()
	h.users.Add(1)
	buffers.hold(account, int64(rest))
	h.c.srv.panics.Go(nil, "connection", func() {
		defer h.drop()
		var err error
		if rest > 0 {
			err = q.settle()
			buffers.hold(account, -int64(rest))
		}
		if err != nil {
			h.fail(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for len(q.pending) > 0 && h.err == nil {
			q.flushRoundLocked(true)
		}
		q.roundOverLocked()
	})
}

// flushHere is for the goroutine that reads, before it waits. It does not read on
// before the client has taken some of what is queued, if that is more than answers may
// take: a client that sends much before it reads must not wait for itself.
func (h *http2Conn) flushHere() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.going == goAwaySoon && time.Since(h.goAwayAt) >= goAwayWait {
		h.goAwayNowLocked() // it may never be silent
	}
	h.flushLocked(false)
	for h.queued > 2*queueLimit && h.flushing && h.err == nil {
		h.flushed.Wait()
	}
}

// discardLocked gives back what will not be written.
func (q *queue) discardLocked() {
	if q.flushing {
		return // it is in use by who writes
	}
	for _, b := range q.pending {
		q.h.c.srv.buffers.put(b)
	}
	q.pending, q.queued = nil, 0
}

// write writes buffers: those of several TLS records at once. Without wait it leaves
// what the client does not take at once, which are rest bytes, for settle.
func (q *queue) write(bufs []*buffer, wait bool) (rest int, err error) {
	defer func() {
		if e := recover(); e != nil {
			q.h.c.srv.panics.Recovered("connection", e)
			err = errPanicked
		}
	}()
	o := &q.h.c.out
	if _, err := o.arm(); err != nil {
		return 0, err
	}
	switch {
	case o.records == nil && wait:
		return 0, o.writePlain(bufs)
	case o.records == nil:
		for _, b := range bufs {
			if err := q.now.write(b.b); err != nil {
				return 0, err
			}
		}
		return len(q.now.rest), nil
	case wait:
		return 0, o.writeRecords(bufs)
	}
	o.records.hold(&q.now)
	err = o.writeRecords(bufs)
	return o.records.held(), err
}

// writePlain writes buffers without TLS.
func (o *output) writePlain(bufs []*buffer) error {
	if len(bufs) == 1 {
		_, err := o.nc.Write(bufs[0].b)
		return err
	}
	parts := make(net.Buffers, len(bufs))
	for i, b := range bufs {
		parts[i] = b.b
	}
	_, err := parts.WriteTo(o.nc)
	return err
}

// writeRecords writes buffers as a TLS record each.
func (o *output) writeRecords(bufs []*buffer) (err error) {
	if len(bufs) > 1 {
		size := largeBuffer
		if len(bufs) > 3 {
			size = recordsBuffer
		}
		if gathered := o.c.getLarge(size); gathered != nil {
			o.records.gather(gathered)
			defer func() {
				if releaseErr := o.records.release(); err == nil {
					err = releaseErr
				}
				o.c.srv.buffers.put(gathered)
			}()
		}
	}
	for _, b := range bufs {
		if _, err := o.nc.Write(b.b); err != nil {
			return err
		}
	}
	return nil
}

// settle writes what a write that did not wait has left.
func (q *queue) settle() error {
	o := &q.h.c.out
	if _, err := o.arm(); err != nil {
		return err
	}
	if o.records != nil {
		return o.records.settle()
	}
	_, err := o.nc.Write(q.now.rest)
	q.now.rest = nil
	return err
}

// send queues s as the client takes it, and waits for that no longer than the write
// timeout for each half MiB; that of an Upgrade until its own deadline. end ends the
// stream with it, flush has it leave at once.
func (st *stream2) send(s *pieces2, end, flush bool) error {
	h := st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	var deadline time.Time
	slice := 0 // bytes left when the deadline is set again
	moved, got := int64(0), int64(0)
	for {
		if err := st.unsendableLocked(); err != nil {
			return st.giveUpLocked(err)
		}
		if h.firstLocked(st) || s.left <= quantum {
			before := s.left
			h.appendDataLocked(st, s, end)
			if s.left < before || s.left == 0 || st.window <= 0 {
				h.leaveLineLocked(st)
			}
			h.callNextLocked()
		}
		if s.left == 0 && (!end || st.sentEnd) {
			break
		}
		if len(h.pending) > 0 && !h.flushing {
			if h.aloneLocked(st) {
				h.flushLocked(true)
				continue
			}
			h.flushSoonLocked()
		}
		// That others have their turn is not the client's fault.
		turns := st.window > 0 && h.sent-moved >= writeSlice
		switch {
		case st.upgraded:
			deadline = st.deadline
		case deadline.IsZero() || s.left <= slice || turns || h.gotLocked()-got >= writeSlice:
			deadline, slice = time.Now().Add(h.c.srv.o.WriteTimeout), s.left-writeSlice
			moved, got = h.sent, h.gotLocked()
		}
		switch inTime := st.waitLocked(deadline); {
		case inTime:
		case st.upgraded:
			return st.giveUpLocked(os.ErrDeadlineExceeded)
		case (st.window <= 0 || h.sent-moved < writeSlice) && h.gotLocked()-got < writeSlice:
			h.resetLocked(st, st.resetCode(), os.ErrDeadlineExceeded)
			return st.giveUpLocked(os.ErrDeadlineExceeded)
		}
	}
	if flush {
		h.flushLocked(false)
	}
	return nil
}

// giveUpLocked leaves what is queued, and the turn, to others.
func (st *stream2) giveUpLocked(err error) error {
	st.h.leaveLineLocked(st)
	st.h.callNextLocked()
	st.h.flushSoonLocked()
	return err
}

// unsendableLocked is why nothing more can be sent on the stream.
func (st *stream2) unsendableLocked() error {
	switch {
	case st.h.err != nil:
		return st.h.err
	case st.h.brokenBy != nil:
		return st.h.brokenBy
	case st.err != nil:
		return st.err
	case st.sentEnd:
		return errStreamOver
	}
	return nil
}

// waitLocked waits until there may be a window and room, or until the stream ends. It
// returns false when the deadline has passed, if there is one. The stream stays in line.
func (st *stream2) waitLocked(deadline time.Time) bool {
	h := st.h
	st.stepAside()
	if st.wake == nil {
		st.wake = make(chan struct{}, 1)
	}
	h.lineUpLocked(st)
	h.mu.Unlock()
	defer h.mu.Lock()
	var late <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-st.wake:
		return true
	case <-late:
		return false
	}
}

// wakeLocked has a goroutine that waits in waitLocked look again.
func (st *stream2) wakeLocked() {
	if st.wake == nil {
		return
	}
	select {
	case st.wake <- struct{}{}:
	default:
	}
}
