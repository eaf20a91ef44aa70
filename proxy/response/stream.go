package response

import (
	"bytes"
	"fmt"

	"github.com/kubeweir/kubeweir/internal/api"
)

const (
	// MaxEvent is the largest event of a watch that is rewritten, in bytes: more than any object
	// that kube-apiserver accepts has in JSON.
	MaxEvent = 4 << 20
	// maxReusedEvent is the largest buffer, in bytes, that is reused for the next event.
	maxReusedEvent = 64 << 10
)

// RewrittenStream is a watch in JSON whose events are rewritten; see EventRewriter.
type RewrittenStream struct {
	api.Stream
	Rewrite func(event []byte) (frame []byte, err error)
	Failed  func(error) []byte
}

// Start implements api.Stream.
func (s *RewrittenStream) Start(w api.StreamWriter) {
	s.Stream.Start(&EventRewriter{StreamWriter: w, Rewrite: s.Rewrite, Failed: s.Failed})
}

// EventRewriter takes a watch in JSON in frames of any size, in which each event ends with a newline,
// and writes what Rewrite returns for each event.
type EventRewriter struct {
	api.StreamWriter
	Rewrite func(event []byte) (frame []byte, err error)
	// Failed returns the last event for the client when Rewrite fails, or nil for none.
	Failed func(error) []byte
	line   []byte   // an incomplete event
	out    [][]byte // events of one call
}

// WriteFrames implements api.StreamWriter.
func (e *EventRewriter) WriteFrames(frames [][]byte) error {
	e.out = e.out[:0]
	for _, rest := range frames {
		for len(rest) > 0 {
			part, after, whole := bytes.Cut(rest, []byte{'\n'})
			if rest = after; len(e.line)+len(part) > MaxEvent {
				return e.fail(fmt.Errorf("it is larger than %d bytes", MaxEvent))
			}
			e.line = append(e.line, part...)
			if !whole {
				break
			}
			if err := e.event(); err != nil {
				return e.fail(err)
			}
		}
	}
	if len(e.out) == 0 {
		return nil
	}
	return e.StreamWriter.WriteFrames(e.out)
}

// event rewrites the event in line.
func (e *EventRewriter) event() error {
	if len(bytes.TrimSpace(e.line)) > 0 {
		frame, err := e.Rewrite(e.line)
		if err != nil {
			return err
		}
		e.out = append(e.out, frame)
	}
	if e.line = e.line[:0]; cap(e.line) > maxReusedEvent {
		e.line = nil
	}
	return nil
}

// fail writes the last event, after those that were rewritten.
func (e *EventRewriter) fail(err error) error {
	if frame := e.Failed(err); frame != nil {
		_ = e.StreamWriter.WriteFrames(append(e.out, frame))
	}
	return err
}
