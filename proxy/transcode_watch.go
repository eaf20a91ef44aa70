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

// transcodedStream is a watch in JSON, given in CBOR.
type transcodedStream struct {
	api.Stream
	count func(transcodedKind, error)
}

// Start implements api.Stream.
func (s *transcodedStream) Start(w api.StreamWriter) {
	s.Stream.Start(&eventTranscoder{StreamWriter: w, count: s.count})
}

// eventTranscoder takes a watch in JSON in frames of any size, each event of which ends with
// a line's end, and writes it in CBOR.
type eventTranscoder struct {
	api.StreamWriter
	count func(transcodedKind, error)
	line  []byte   // of an event that has not ended
	out   [][]byte // events of one call
}

// WriteFrames implements api.StreamWriter.
func (e *eventTranscoder) WriteFrames(frames [][]byte) error {
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

// event transcodes the event in line.
func (e *eventTranscoder) event() error {
	var event struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if len(bytes.TrimSpace(e.line)) > 0 {
		if err := json.Unmarshal(e.line, &event); err != nil {
			return err
		}
		if event.Type == "" || event.Object == nil {
			return errors.New("it lacks its type or its object")
		}
		frame, err := cbor.Append(cbor.AppendFrameHead(nil, event.Type), event.Object, shapeOf(event.Object))
		if err != nil {
			return err
		}
		e.out = append(e.out, frame)
		e.count(watchEvent, nil)
	}
	if e.line = e.line[:0]; cap(e.line) > keptEvent {
		e.line = nil
	}
	return nil
}

// fail tells the client what went wrong, after what has not.
func (e *eventTranscoder) fail(err error) error {
	e.count(watchEvent, err)
	err = apierrors.NewInternalError(fmt.Errorf("giving the upstream's event in CBOR: %w", err))
	text := api.EncodeStatus(api.StatusOf(err), api.StatusJSON)
	if frame, encodeErr := cbor.Append(cbor.AppendFrameHead(nil, api.Error.String()), text, cbor.Untyped); encodeErr == nil {
		_ = e.StreamWriter.WriteFrames(append(e.out, frame))
	}
	return err
}
