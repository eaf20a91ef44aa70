package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/encoding/cbor"
)

const (
	// maxTranscodedEvent is the largest event of a watch that is transcoded: more than
	// an object that kube-apiserver takes has in JSON.
	maxTranscodedEvent = 4 << 20
	// maxTranscodedWatches is how many watches at a time are, which users share. Watches
	// in CBOR are forwarded rarely: the cache has most of them.
	maxTranscodedWatches = 32
	// keptEvent is how much room is kept between two events.
	keptEvent = 64 << 10
)

// rewrittenStream is a watch in JSON, rewritten by what by makes of where it is written to.
type rewrittenStream struct {
	api.Stream
	by func(api.StreamWriter) api.StreamWriter
}

// Start implements api.Stream.
func (s *rewrittenStream) Start(w api.StreamWriter) { s.Stream.Start(s.by(w)) }

// eventRewriter takes a watch in JSON in frames of any size, each event of which ends with
// a line's end, and writes what rewrite makes of each event.
type eventRewriter struct {
	api.StreamWriter
	rewrite func(event []byte) (frame []byte, err error)
	// failed makes what the client is told when that fails; nil for nothing.
	failed func(error) []byte
	line   []byte   // of an event that has not ended
	out    [][]byte // events of one call
}

// WriteFrames implements api.StreamWriter.
func (e *eventRewriter) WriteFrames(frames [][]byte) error {
	e.out = e.out[:0]
	for _, rest := range frames {
		for len(rest) > 0 {
			part, after, whole := bytes.Cut(rest, []byte{'\n'})
			if rest = after; len(e.line)+len(part) > maxTranscodedEvent {
				return e.fail(fmt.Errorf("it is larger than %d bytes", maxTranscodedEvent))
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
func (e *eventRewriter) event() error {
	if len(bytes.TrimSpace(e.line)) > 0 {
		frame, err := e.rewrite(e.line)
		if err != nil {
			return err
		}
		e.out = append(e.out, frame)
	}
	if e.line = e.line[:0]; cap(e.line) > keptEvent {
		e.line = nil
	}
	return nil
}

// fail tells the client what went wrong, after what has not.
func (e *eventRewriter) fail(err error) error {
	if frame := e.failed(err); frame != nil {
		_ = e.StreamWriter.WriteFrames(append(e.out, frame))
	}
	return err
}

// eventInCBOR is an event in CBOR.
func (f *transcoder) eventInCBOR(line []byte) ([]byte, error) {
	var event struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return nil, err
	}
	if event.Type == "" || event.Object == nil {
		return nil, errors.New("it lacks its type or its object")
	}
	frame, err := cbor.Append(cbor.AppendFrameHead(nil, event.Type), event.Object, shapeOf(event.Object))
	if err == nil {
		f.count(watchEvent, nil)
	}
	return frame, err
}

// failedInCBOR is the last event of a watch that cannot be given in CBOR.
func (f *transcoder) failedInCBOR(err error) []byte {
	f.count(watchEvent, err)
	err = apierrors.NewInternalError(fmt.Errorf("giving the upstream's event in CBOR: %w", err))
	text := api.EncodeStatus(api.StatusOf(err), api.StatusJSON)
	frame, encodeErr := cbor.Append(cbor.AppendFrameHead(nil, api.Error.String()), text, cbor.Untyped)
	if encodeErr != nil {
		return nil
	}
	return frame
}
