package h2

import (
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

const (
	// queueLimit is how many bytes of frames are queued before those who have more
	// wait, and so what is written at once: eight full TLS records.
	queueLimit = 8 * edge.SmallBuffer
	// quantum is how much of a response is queued while others wait for their turn.
	quantum = queueLimit / 2
	// pingAfter is how much of what a client has not told of is sent before it is asked.
	pingAfter = edge.WriteSlice / 2
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
	h *conn

	pending []*edge.Buffer
	spare   []*edge.Buffer // the slice of what was written last
	// queued counts the bytes of pending that frames use, and the tails of all buffers but the last, which stay unused.
	queued int
	// flushing says that somebody writes, alone; flushed tells when that is over.
	flushing bool
	flushed  sync.Cond

	// window is what the client takes over all streams, initial that of a new one.
	window, initial int64
	// maxFrame is the largest payload that the client takes.
	maxFrame int
	// sent counts the bytes of DATA that were queued. The client is known to have those
	// that it told of in window updates, and those before the last PING that it answered.
	// asked is sent when such a PING was queued last.
	sent, byUpdates, byPing, pinged int64
	// line are the streams that wait for their turn, because the queue was full or the
	// connection's window closed. The first is called when it can go on, and leaves the line
	// when it has: whatever else wakes it, or others, changes no place.
	line []*stream
	// sendNoTable is set when the client is to be told that its table for headers stays
	// empty.
	sendNoTable bool
	// earned is the client's for requests that were answered, updates how many window
	// updates it may send for data that it got: see effort.
	earned, updates int
}

func (q *queue) init(h *conn) {
	q.h = h
	q.window, q.initial, q.maxFrame, q.sendNoTable = initialWindow, initialWindow, frameSize, true
	q.flushed.L = &h.mu
}

// tailRoomLocked returns the free bytes of the last buffer.
func (q *queue) tailRoomLocked() int {
	if len(q.pending) == 0 {
		return 0
	}
	b := q.pending[len(q.pending)-1].B
	return cap(b) - len(b)
}

// tailLocked is a buffer with room for n bytes.
func (q *queue) tailLocked(n int) *edge.Buffer {
	tail := q.tailRoomLocked()
	if tail >= n && tail > 0 {
		return q.pending[len(q.pending)-1]
	}
	q.queued += tail
	b := q.h.c.Buffer(edge.SmallBuffer)
	q.pending = append(q.pending, b)
	return b
}

// appendFrame queues a frame with a small payload, whose room it returns.
func (q *queue) appendFrame(kind http2.FrameType, flags http2.Flags, id uint32, size int) []byte {
	b := q.tailLocked(frameHead + size)
	b.B = appendFrameHead(b.B, kind, flags, id, size)
	n := len(b.B)
	b.B = b.B[:n+size]
	q.queued += frameHead + size
	return b.B[n:]
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
	if q.sendNoTable {
		table = 1
	}
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if end {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(block), edge.SmallBuffer-frameHead-table)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		p := q.appendFrame(kind, flags, id, n+table)
		if table > 0 {
			// What is sent needs no dynamic table. A client that has just made its smaller
			// expects to be told that (RFC 7541, 4.2).
			p[0], p, q.sendNoTable, table = noDynamicTable, p[1:], false, 0
		}
		copy(p, block[:n])
		if block = block[n:]; len(block) == 0 {
			return
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// pieces are bytes in several slices that are sent as if they were in one.
type pieces struct {
	list [][]byte
	at   int // in list[0]
	left int // over all
}

// read copies the next len(p) bytes.
func (s *pieces) read(p []byte) {
	s.left -= len(p)
	for len(p) > 0 {
		n := copy(p, s.list[0][s.at:])
		p = p[n:]
		if s.at += n; s.at == len(s.list[0]) {
			s.list, s.at = s.list[1:], 0
		}
	}
}

// sendableLocked returns how many of the next size bytes of a stream may be queued now, as the windows, the room of the
// queue and fairness allow.
func (q *queue) sendableLocked(st *stream, size int) int {
	turn := queueLimit
	if !q.aloneLocked(st) {
		turn = quantum
	}
	return q.payloadRoomLocked(int(min(int64(size), q.window, st.window, int64(turn))))
}

// payloadRoomLocked returns how many of the next size bytes of DATA fit into the room of the queue. It lays the frames
// out as queueDataLocked does, because their heads and the tails of buffers that they leave unused take room as well.
func (q *queue) payloadRoomLocked(size int) (fits int) {
	room, tail := q.roomLocked(), q.tailRoomLocked()
	for fits < size {
		if tail < frameHead+min(size-fits, leastData) {
			room, tail = room-tail, edge.SmallBuffer
		}
		n := min(size-fits, room-frameHead, tail-frameHead, q.maxFrame)
		if n <= 0 {
			break
		}
		fits, room, tail = fits+n, room-frameHead-n, tail-frameHead-n
	}
	return fits
}

// queueDataLocked queues DATA frames with the next size bytes of s, all of them: how many may be queued is for
// sendableLocked to say before. If end is set, the last byte of s ends the stream.
func (q *queue) queueDataLocked(st *stream, s *pieces, size int, end bool) {
	end = end && size == s.left
	q.window -= int64(size)
	st.window -= int64(size)
	for size > 0 || end {
		q.pingIfFarLocked()
		b := q.tailLocked(frameHead + min(size, leastData))
		n := min(size, cap(b.B)-len(b.B)-frameHead, q.maxFrame)
		size -= n
		flags := http2.Flags(0)
		if end && size == 0 {
			flags, end = http2.FlagDataEndStream, false
			st.endedLocked()
		}
		b.B = appendFrameHead(b.B, http2.FrameData, flags, st.id, n)
		s.read(b.B[len(b.B) : len(b.B)+n])
		b.B = b.B[:len(b.B)+n]
		q.queued += frameHead + n
		q.sent += int64(n)
		q.updates += 1 + n/updateBytes
	}
}

// roomLocked is how much more may be queued.
func (q *queue) roomLocked() int { return q.limit() - q.queued }

// limit is how much may be queued, of data, and of answers before more is read. The more all
// connections hold, the less.
func (q *queue) limit() int {
	switch held := q.h.c.Buffers.Held.Load(); {
	case held > edge.LargeAllowed:
		return edge.SmallBuffer
	case held > edge.RecordsAllowed:
		return queueLimit / 2
	}
	return queueLimit
}

// pingIfFarLocked asks a client that tells of what it has in large steps, so that one on a slow
// line, who answers again and again, is told from one who waits for nothing.
func (q *queue) pingIfFarLocked() {
	if q.sent-max(q.pinged, q.acknowledgedLocked()) < pingAfter {
		return
	}
	q.pinged = q.sent
	q.updates++ // the answer
	q.appendPing(false, sentPing(q.sent))
}

// acknowledgedLocked is how much of what was sent the client is known to have.
func (q *queue) acknowledgedLocked() int64 { return max(q.byUpdates, q.byPing) }

// timeForLocked is for how much longer than timeout an answer may take that the client
// gives only when it has what was sent before. It is asked often: it is not silent for long.
func (q *queue) timeForLocked() time.Duration {
	return time.Duration(min(q.sent-q.acknowledgedLocked(), edge.WriteSlice)) * q.h.c.Options.WriteTimeout / edge.WriteSlice
}
