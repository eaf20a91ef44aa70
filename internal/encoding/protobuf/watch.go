package protobuf

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// envelopeRoom is how much larger than its object an event may be.
const envelopeRoom = 4 << 10

// events reads a watch: frames of a four-byte big-endian length and a WatchEvent, whose object is
// in an envelope.
type events struct {
	r     io.Reader
	buf   []byte
	limit int
}

// NewEvents implements encoding.Codec.
func (Codec) NewEvents(r io.Reader, limit int) encoding.Events {
	return &events{r: r, buf: make([]byte, encoding.WatchBuffer), limit: limit}
}

// Next implements encoding.Events.
func (w *events) Next() (encoding.Event, error) {
	frame, err := w.frame()
	if err != nil {
		return encoding.Event{}, err
	}
	var e encoding.Event
	err = walkBytes(frame, func(f field) (err error) {
		switch f.num {
		case watchEventType:
			e.Type, err = encoding.ParseEventType(f.bytes)
		case watchEventObject:
			e.Object, err = eventObject(f.bytes)
		}
		return err
	})
	if err != nil {
		return encoding.Event{}, err
	}
	return e.Complete()
}

// frame reads one frame, which is valid until the next call.
func (w *events) frame() ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(w.r, length[:]); err != nil {
		// io.EOF only if nothing was read.
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(length[:]))
	if size > int64(w.limit)+envelopeRoom {
		return nil, encoding.TooLarge("watch event", w.limit)
	}
	buf := w.buf
	if size > int64(len(buf)) {
		buf = make([]byte, size)
		if size <= encoding.KeepBuffer {
			w.buf = buf
		}
	}
	buf = buf[:size]
	if _, err := io.ReadFull(w.r, buf); err != nil {
		return nil, encoding.Inside(err)
	}
	return buf, nil
}

// eventObject returns the message in the envelope of a RawExtension.
func eventObject(extension []byte) (object []byte, err error) {
	err = walkBytes(extension, func(f field) error {
		if f.num != rawExtensionRaw {
			return nil
		}
		_, raw, err := contents(f.bytes)
		if err != nil {
			return fmt.Errorf("object of the watch event: %w", err)
		}
		object = append(make([]byte, 0, len(raw)), raw...)
		return nil
	})
	return object, err
}
