package h2

import (
	"encoding/binary"
	"slices"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

const (
	// queueLimit is the number of queued bytes above which streams with more data wait. It is also
	// the size of one write: eight full TLS records.
	queueLimit = 8 * edge.SmallBuffer
	// quantum is how many bytes of a response are queued per round while other streams wait.
	quantum = queueLimit / 2
	// pingAfter is the number of unacknowledged bytes after which the client is sent a PING.
	pingAfter = edge.WriteSlice / 2
	// leastData is the smallest payload of a DATA frame, unless the remaining data is shorter.
	leastData = 512
	// frameSize is the maximum payload of a frame. Every endpoint accepts this size (RFC 9113,
	// 4.2).
	frameSize = 16 << 10
	// frameHead is the size of a frame's header.
	frameHead = 9
	// initialWindow is the window of a stream and of a connection before SETTINGS or WINDOW_UPDATE
	// change it.
	initialWindow = 1<<16 - 1
	// maxWindow is the maximum size of a window.
	maxWindow = 1<<31 - 1
)

// queue holds the frames to send on a connection, laid out in buffers of the size of a TLS record,
// each of which becomes one. A goroutine that queues something while no other goroutine writes
// becomes the writer: it also writes what others queue meanwhile, see flushLocked. Cached bytes are
// copied once, into a record.
//
// Its methods whose names end in Locked are for callers that hold conn.mu, which guards all of it.
type queue struct {
	c       *edge.Conn
	pending []*edge.Buffer
	spare   []*edge.Buffer // the slice of what was written last
	// queued counts the bytes of pending, including the unused tails of all buffers except the
	// last.
	queued int

	// window is the client's window for the connection, initial its window for a new stream.
	window, initial int64
	// maxFrame is the largest payload that the client accepts.
	maxFrame int
	delivery delivery
	// line holds the streams that wait because the queue was full or the connection's window
	// closed. The first is woken when it can continue, and leaves the line after it has. Being
	// woken for any other reason changes no position.
	line []*stream
	// sendNoTable is set when the next header must tell the client that the dynamic table stays
	// empty.
	sendNoTable bool
	// earned is credit for completed responses. updates is how many free WINDOW_UPDATE frames the
	// client has left for data that it received; see charge.
	earned, updates int
}

// delivery tracks how much DATA the client has received: the bytes that it acknowledged by
// WINDOW_UPDATE, and those sent before the last PING that it acknowledged.
type delivery struct {
	sent int64 // bytes that were queued
	// byUpdates and byPing are the bytes acknowledged in either way. pinged is the value of sent
	// when the last PING was queued.
	byUpdates, byPing, pinged int64
}

// acknowledged returns how many of the sent bytes the client is known to have received.
func (d *delivery) acknowledged() int64 { return max(d.byUpdates, d.byPing) }

// pingLocked queues a PING. Its acknowledgment shows that the client has received everything before
// it.
func (q *queue) pingLocked() {
	var data [8]byte
	binary.BigEndian.PutUint64(data[:], uint64(q.delivery.sent)) //nolint:gosec // not negative
	q.appendPing(false, data)
}

// gotPing handles the acknowledgment of a PING.
func (d *delivery) gotPing(data [8]byte) {
	d.byPing = max(d.byPing, int64(min(binary.BigEndian.Uint64(data[:]), uint64(d.sent)))) //nolint:gosec // not negative
}

// timeFor returns how much longer than writeTimeout the client may take to acknowledge a PING,
// because it first has to receive the data before the PING.
func (d *delivery) timeFor(writeTimeout time.Duration) time.Duration {
	return time.Duration(min(d.sent-d.acknowledged(), edge.WriteSlice)) * writeTimeout / edge.WriteSlice
}

// pingIfFarLocked sends a PING if much is unacknowledged. Some clients acknowledge data in large
// steps only. The PINGs distinguish a client on a slow line, which acknowledges each, from one that
// reads nothing.
func (q *queue) pingIfFarLocked() {
	d := &q.delivery
	if d.sent-max(d.pinged, d.acknowledged()) < pingAfter {
		return
	}
	d.pinged = d.sent
	q.updates++ // the answer
	q.pingLocked()
}

// tailRoomLocked returns the free bytes of the last buffer.
func (q *queue) tailRoomLocked() int {
	if len(q.pending) == 0 {
		return 0
	}
	b := q.pending[len(q.pending)-1].B
	return cap(b) - len(b)
}

// tailLocked returns a buffer with room for n bytes.
func (q *queue) tailLocked(n int) *edge.Buffer {
	tail := q.tailRoomLocked()
	if tail >= n && tail > 0 {
		return q.pending[len(q.pending)-1]
	}
	q.queued += tail
	b := q.c.Buffer(edge.SmallBuffer)
	q.pending = append(q.pending, b)
	return b
}

// appendFrame queues a frame with a small payload, and returns the room for the payload.
func (q *queue) appendFrame(kind http2.FrameType, flags http2.Flags, id uint32, size int) []byte {
	b := q.tailLocked(frameHead + size)
	b.B = appendFrameHead(b.B, kind, flags, id, size)
	n := len(b.B)
	b.B = b.B[:n+size]
	q.queued += frameHead + size
	return b.B[n:]
}

func appendFrameHead(dst []byte, kind http2.FrameType, flags http2.Flags, id uint32, size int) []byte {
	dst = append(dst, byte(size>>16), byte(size>>8), byte(size), byte(kind), byte(flags)) //nolint:gosec // the bytes of a number
	return binary.BigEndian.AppendUint32(dst, id)
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

// appendHeaders queues a header, in as many frames as necessary.
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
			// Headers are sent without a dynamic table. A client that has just reduced its table
			// size expects a table size update (RFC 7541, 4.2).
			p[0], p, q.sendNoTable, table = noDynamicTable, p[1:], false, 0
		}
		copy(p, block[:n])
		if block = block[n:]; len(block) == 0 {
			return
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// pieces are several slices that are sent as one byte sequence.
type pieces struct {
	list [][]byte
	at   int // in list[0]
	left int // over all
}

func newPieces(list [][]byte) pieces {
	p := pieces{list: list}
	for _, piece := range list {
		p.left += len(piece)
	}
	return p
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

// roomLocked returns how many more bytes may be queued.
func (q *queue) roomLocked() int { return q.limit() - q.queued }

// limit returns how many bytes of data may be queued, and of responses before more is read. It
// decreases with the memory that all connections hold.
func (q *queue) limit() int { return q.c.Buffers.Scale(queueLimit, edge.SmallBuffer) }

// sendableLocked returns how many of the next size bytes of a stream may be queued now, as the
// windows, the room of the queue and fairness allow.
func (q *queue) sendableLocked(st *stream, size int) int {
	round := queueLimit
	if !q.aloneLocked(st) {
		round = quantum
	}
	return q.payloadRoomLocked(int(min(int64(size), q.window, st.window, int64(round))))
}

// payloadRoomLocked returns how many of the next size bytes of DATA fit into the room of the queue.
// It lays the frames out as queueDataLocked does, because their heads and the tails of buffers that
// they leave unused take room as well.
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

// queueDataLocked queues DATA frames with the next size bytes of s. The caller has obtained size
// from sendableLocked. If end is set, the last byte of s ends the stream; ended reports whether it
// was queued.
func (q *queue) queueDataLocked(st *stream, s *pieces, size int, end bool) (ended bool) {
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
			flags, end, ended = http2.FlagDataEndStream, false, true
		}
		b.B = appendFrameHead(b.B, http2.FrameData, flags, st.id, n)
		s.read(b.B[len(b.B) : len(b.B)+n])
		b.B = b.B[:len(b.B)+n]
		q.queued += frameHead + n
		q.delivery.sent += int64(n)
		q.updates += 1 + n/updateBytes
	}
	return ended
}

// wakeNextLocked wakes the first stream in line if it can continue.
func (q *queue) wakeNextLocked() {
	if len(q.line) > 0 && q.window > 0 && q.roomLocked() > 0 {
		q.line[0].wakeLocked()
	}
}

// firstLocked reports whether no other stream is ahead of st in line.
func (q *queue) firstLocked(st *stream) bool { return len(q.line) == 0 || q.line[0] == st }

// aloneLocked reports whether no other stream is in line.
func (q *queue) aloneLocked(st *stream) bool {
	return len(q.line) == 0 || len(q.line) == 1 && st.inLine
}

// lineUpLocked puts a stream into the line. Streams whose own window is closed do not wait in line.
func (q *queue) lineUpLocked(st *stream) {
	if st.window > 0 && !st.inLine {
		st.inLine = true
		q.line = append(q.line, st)
	}
}

// leaveLineLocked removes a stream that had its round or no longer waits.
func (q *queue) leaveLineLocked(st *stream) {
	if st.inLine {
		st.inLine = false
		q.line = slices.DeleteFunc(q.line, func(other *stream) bool { return other == st })
	}
}

const (
	// uploadBuffer is how many bytes of a request's body a client may send before they are read,
	// uploadBuffers the same for all requests of a connection.
	uploadBuffer  = 256 << 10
	uploadBuffers = 1 << 20
)
