package cache

import "github.com/kubeweir/kubeweir/internal/api"

// An event of a watch in messages is the same pieces as that of a stream, behind a head
// of their size: what is shared is shared by both.

// protobufLength is what comes before each event of a stream of protobuf.
const protobufLength = 4

// openMessage leaves room for the head of the event that is appended next.
func (s *watchStream) openMessage(sc *scratch) (head int) {
	if s.req.Message == nil {
		return 0
	}
	sc.frames = append(sc.frames, nil)
	return len(sc.frames) - 1
}

// closeMessage completes the event that was appended since openMessage.
func (s *watchStream) closeMessage(sc *scratch, head int) {
	if s.req.Message == nil || len(sc.frames) == head+1 {
		return // nothing was appended: an error, which is told instead
	}
	if s.req.Rep.Encoding == api.Protobuf {
		sc.frames[head+1] = sc.frames[head+1][protobufLength:]
	}
	size := 0
	for _, f := range sc.frames[head+1:] {
		size += len(f)
	}
	start := len(sc.buf)
	sc.buf = s.req.Message(sc.buf, size)
	sc.frames[head] = sc.buf[start:len(sc.buf):len(sc.buf)]
}
