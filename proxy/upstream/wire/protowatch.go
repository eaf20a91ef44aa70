package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// envelopeRoom is what an event may have around its object.
const envelopeRoom = 4 << 10

// ProtobufEvents reads the events of a protobuf watch: frames of a length in four
// bytes, big endian, and a WatchEvent, whose object is enveloped.
type ProtobufEvents struct {
	r     io.Reader
	buf   []byte
	limit int
}

var _ Events = (*ProtobufEvents)(nil)

// NewProtobufEvents reads from r. No object may have more than limit bytes.
func NewProtobufEvents(r io.Reader, limit int) *ProtobufEvents {
	return &ProtobufEvents{r: r, buf: make([]byte, watchBuffer), limit: limit}
}

// Next implements Events.
func (w *ProtobufEvents) Next() (Event, error) {
	frame, err := w.frame()
	if err != nil {
		return Event{}, err
	}
	var e Event
	err = fields(frame, func(num protowire.Number, content []byte) (err error) {
		switch num {
		case watchEventType:
			e.Type, err = parseType(content)
		case watchEventObject:
			e.Object, err = eventObject(content)
		}
		return err
	})
	if err != nil {
		return Event{}, err
	}
	if e.Type == 0 || e.Object == nil {
		return Event{}, errors.New("malformed watch event: it lacks its type or its object")
	}
	return e, nil
}

// frame reads one frame; it is valid until the next call.
func (w *ProtobufEvents) frame() ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(w.r, length[:]); err != nil {
		// io.EOF only when nothing was read.
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(length[:]))
	if size > int64(w.limit)+envelopeRoom {
		return nil, tooLarge("watch event", w.limit)
	}
	buf := w.buf
	if size > int64(len(buf)) {
		buf = make([]byte, size)
		if size <= keepBuffer {
			w.buf = buf
		}
	}
	buf = buf[:size]
	if _, err := io.ReadFull(w.r, buf); err != nil {
		return nil, inside(err)
	}
	return buf, nil
}

// eventObject takes the message out of a RawExtension with an envelope.
func eventObject(extension []byte) (object []byte, err error) {
	err = fields(extension, func(num protowire.Number, content []byte) error {
		if num != rawExtensionRaw {
			return nil
		}
		_, message, err := openEnvelope(content)
		if err != nil {
			return fmt.Errorf("object of the watch event: %w", err)
		}
		if object = bytes.Clone(message); object == nil {
			object = []byte{}
		}
		return nil
	})
	return object, err
}
