package json

import (
	"bytes"
	"fmt"
	"io"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// events reads a watch: objects {"type":T,"object":O} one after the other, with optional white
// space between them.
type events struct{ stream }

// NewEvents implements encoding.Codec.
func (Codec) NewEvents(r io.Reader, limit int) encoding.Events {
	return &events{newStream(r, encoding.WatchBuffer, limit)}
}

// Next implements encoding.Events.
func (w *events) Next() (encoding.Event, error) {
	w.shrink()
	switch c, err := w.peek(); {
	case err != nil:
		return encoding.Event{}, err
	case c != '{':
		return encoding.Event{}, syntax(c, "want a watch event")
	}
	w.pos++
	var e encoding.Event
	for first := true; ; first = false {
		more, err := w.separated(first, '}')
		if err != nil {
			return encoding.Event{}, err
		}
		if !more {
			break
		}
		if err := w.member(&e); err != nil {
			return encoding.Event{}, err
		}
	}
	return e.Complete()
}

func (w *events) member(e *encoding.Event) error {
	key, err := w.key()
	if err != nil {
		return err
	}
	value, err := w.value()
	if err != nil {
		return fmt.Errorf("%s of the watch event: %w", key, err)
	}
	switch key {
	case "type":
		e.Type, err = encoding.ParseEventType(bytes.Trim(value, `"`))
		return err
	case "object":
		if value[0] != '{' {
			return syntax(value[0], "want an object that is an object")
		}
		e.Object = bytes.Clone(value)
	}
	return nil
}

// shrink releases a buffer that grew for a large object.
func (w *events) shrink() {
	if len(w.buf) <= encoding.KeepBuffer || w.end-w.pos > encoding.KeepBuffer/2 {
		return
	}
	buf := make([]byte, max(encoding.WatchBuffer, w.end-w.pos))
	w.end = copy(buf, w.buf[w.pos:w.end])
	w.pos, w.buf = 0, buf
}
