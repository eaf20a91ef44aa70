package websocket

import (
	"encoding/binary"
	"math"
)

// Opcodes (RFC 6455, 5.2).
const (
	opText   = 0x1
	opBinary = 0x2
	opClose  = 0x8
	opPing   = 0x9
	opPong   = 0xa
)

const (
	final  = 0x80 // of the first byte: the message's last frame
	masked = 0x80 // of the second
	// maxControl is the most that a control frame carries.
	maxControl = 125
	// maxPayload is the most that a client's frame carries; golang.org/x/net/websocket's
	// DefaultMaxPayloadBytes, which is kube-apiserver's.
	maxPayload = 32 << 20
)

// Codes of close frames (RFC 6455, 7.4.1).
const (
	closeNormal   uint16 = 1000
	closeProtocol uint16 = 1002
	closePolicy   uint16 = 1008
)

// AppendTextHead appends the head of a text message of size bytes.
func AppendTextHead(dst []byte, size int) []byte { return appendHead(dst, opText, size) }

// AppendBinaryHead appends the head of a binary message of size bytes.
func AppendBinaryHead(dst []byte, size int) []byte { return appendHead(dst, opBinary, size) }

// appendHead appends the head of a server's frame: a whole message, and not masked, so
// that the payload goes to everybody as it is.
func appendHead(dst []byte, opcode byte, size int) []byte {
	dst = append(dst, final|opcode)
	switch {
	case size <= maxControl:
		return append(dst, byte(size))
	case size <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, 126), uint16(size))
	}
	return binary.BigEndian.AppendUint64(append(dst, 127), uint64(size))
}

// closeFrame is a close frame without a reason in words.
func closeFrame(code uint16) []byte {
	return binary.BigEndian.AppendUint16(appendHead(nil, opClose, 2), code)
}

// reader parses a client's frames as they arrive, in pieces of any size. It buffers only a header
// and the payload of a ping. Like golang.org/x/net/websocket, which kube-apiserver uses, it ignores
// the reserved bits, the reserved opcodes and the order of fragments.
type reader struct {
	// ping is called with the payload of a ping, which it must not retain.
	ping func(payload []byte)
	// frames counts those that have begun.
	frames int

	head    []byte // of the frame that is being read
	inside  bool   // the payload is being read
	left    uint64 // bytes of the payload that are still to come
	control []byte // what was kept of a ping
}

// feed reads p. A code other than 0 is the one to close with, and nothing more is to be read.
func (r *reader) feed(p []byte) (code uint16) {
	for len(p) > 0 {
		if !r.inside {
			r.head = append(r.head, p[0])
			p = p[1:]
			if len(r.head) < 2 || len(r.head) < r.headSize() {
				continue
			}
			if code := r.begin(); code != 0 {
				return code
			}
		} else {
			n := int(min(r.left, uint64(len(p))))
			if r.opcode() == opPing {
				r.keep(p[:n])
			}
			r.left -= uint64(n)
			p = p[n:]
		}
		if r.left == 0 {
			if r.opcode() == opPing {
				r.ping(r.control)
			}
			r.head, r.control, r.inside = r.head[:0], r.control[:0], false
		}
	}
	return 0
}

func (r *reader) opcode() byte { return r.head[0] & 0xf }

// headSize is how long the head is, of which there are two bytes.
func (r *reader) headSize() int {
	size := 2
	switch r.head[1] &^ masked {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if r.head[1]&masked != 0 {
		size += 4
	}
	return size
}

// begin looks at a whole head.
func (r *reader) begin() (code uint16) {
	r.frames++
	r.inside = true
	switch length := r.head[1] &^ masked; length {
	case 126:
		r.left = uint64(binary.BigEndian.Uint16(r.head[2:]))
	case 127:
		r.left = binary.BigEndian.Uint64(r.head[2:]) & math.MaxInt64
	default:
		r.left = uint64(length)
	}
	switch {
	case r.head[1]&masked == 0:
		return closeProtocol
	case r.opcode() == opClose:
		return closeNormal
	case r.opcode() != opPing && r.opcode() != opPong && r.left > maxPayload:
		return closeNormal
	}
	return 0
}

// keep keeps of a ping as much as a pong can carry.
func (r *reader) keep(p []byte) {
	mask := r.head[len(r.head)-4:]
	for _, b := range p[:min(len(p), maxControl-len(r.control))] {
		r.control = append(r.control, b^mask[len(r.control)%4])
	}
}
