package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// watchBuffer is the size of what a watch is read through while it is quiet; a
// buffer that grew beyond keepBuffer is given up after the event it grew for.
const (
	watchBuffer = 4 << 10
	keepBuffer  = 256 << 10
)

// JSONEvents reads the events of a JSON watch: objects {"type":T,"object":O} one
// after the other, with whatever white space between them.
type JSONEvents struct {
	scanner
}

var _ Events = (*JSONEvents)(nil)

// NewJSONEvents reads from r. No object may have more than limit bytes.
func NewJSONEvents(r io.Reader, limit int) *JSONEvents {
	return &JSONEvents{newScanner(r, watchBuffer, limit)}
}

// Next implements Events.
func (w *JSONEvents) Next() (Event, error) {
	w.shrink()
	switch c, err := w.peek(); {
	case err != nil:
		return Event{}, err
	case c != '{':
		return Event{}, syntax(c, "want a watch event")
	}
	w.pos++
	var e Event
	for first := true; ; first = false {
		more, err := w.separated(first, '}')
		if err != nil {
			return Event{}, err
		}
		if !more {
			break
		}
		if err := w.member(&e); err != nil {
			return Event{}, err
		}
	}
	if e.Type == 0 || e.Object == nil {
		return Event{}, errors.New("malformed watch event: it lacks its type or its object")
	}
	return e, nil
}

func (w *JSONEvents) member(e *Event) error {
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
		e.Type, err = parseType(bytes.Trim(value, `"`))
		return err
	case "object":
		if value[0] != '{' {
			return syntax(value[0], "want an object that is an object")
		}
		e.Object = bytes.Clone(value)
	}
	return nil
}

// shrink gives up a buffer that a large object made grow.
func (w *JSONEvents) shrink() {
	if len(w.buf) <= keepBuffer || w.end-w.pos > keepBuffer/2 {
		return
	}
	buf := make([]byte, max(watchBuffer, w.end-w.pos))
	w.end = copy(buf, w.buf[w.pos:w.end])
	w.pos, w.buf = 0, buf
}
