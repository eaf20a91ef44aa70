package json

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// stream finds the values of a stream of JSON without interpreting them. It checks that brackets
// match and strings end; the scan of the value checks the rest.
type stream struct {
	r        io.Reader
	buf      []byte
	pos, end int // buf[pos:end] was read and not consumed
	max      int // maximum size of one value
	stack    []byte
}

func newStream(r io.Reader, size, limit int) stream {
	return stream{r: r, buf: make([]byte, min(size, max(limit, 16))), max: limit}
}

// fill reads more bytes to end. It preserves the bytes from keep on and may move them to the front;
// shift is how far. The buffer grows when they fill it.
func (s *stream) fill(keep int) (shift int, err error) {
	if s.end == len(s.buf) {
		if keep > 0 {
			copy(s.buf, s.buf[keep:s.end])
			s.pos -= keep
			s.end -= keep
			shift = keep
		} else {
			if len(s.buf) >= s.max {
				return 0, encoding.TooLarge("JSON", s.max)
			}
			grown := make([]byte, min(2*len(s.buf), s.max))
			copy(grown, s.buf)
			s.buf = grown
		}
	}
	for range 100 {
		n, err := s.r.Read(s.buf[s.end:])
		s.end += n
		if n > 0 {
			return shift, nil
		}
		if err != nil {
			return shift, err
		}
	}
	return shift, io.ErrNoProgress
}

// peek skips white space and returns the next byte without consuming it; io.EOF at the end of the
// stream.
func (s *stream) peek() (byte, error) {
	for {
		if s.pos = skipSpace(s.buf[:s.end], s.pos); s.pos < s.end {
			return s.buf[s.pos], nil
		}
		if _, err := s.fill(s.pos); err != nil {
			return 0, err
		}
	}
}

// expect consumes the next byte, which must be c.
func (s *stream) expect(c byte) error {
	got, err := s.peek()
	if err != nil {
		return encoding.Inside(err)
	}
	if got != c {
		return syntax(got, "want "+string(rune(c)))
	}
	s.pos++
	return nil
}

func syntax(got byte, want string) error {
	return fmt.Errorf("malformed JSON: %q, %s", rune(got), want)
}

// separated consumes the comma before the next element, or the closing byte; more reports which.
// first is true before the first element.
func (s *stream) separated(first bool, closing byte) (more bool, err error) {
	c, err := s.peek()
	switch {
	case err != nil:
		return false, encoding.Inside(err)
	case c == closing:
		s.pos++
		return false, nil
	case first:
		return true, nil
	case c != ',':
		return false, syntax(c, "want , or "+string(rune(closing)))
	}
	s.pos++
	return true, nil
}

// key consumes the key of an object's member and its colon, and returns the key without quotes and
// with its escapes. It is valid until the next call.
func (s *stream) key() (string, error) {
	if c, err := s.peek(); err != nil {
		return "", encoding.Inside(err)
	} else if c != '"' {
		return "", syntax(c, "want a key")
	}
	quoted, err := s.text()
	if err != nil {
		return "", err
	}
	key := keyName(quoted[1 : len(quoted)-1])
	return key, s.expect(':')
}

// keyName is string(key) without an allocation for known keys.
func keyName(key []byte) string {
	switch string(key) {
	case "type":
		return "type"
	case "object":
		return "object"
	}
	return string(key)
}

// value consumes the next value and returns its bytes, which are valid until the next call.
func (s *stream) value() ([]byte, error) {
	c, err := s.peek()
	if err != nil {
		return nil, encoding.Inside(err)
	}
	switch {
	case c == '{' || c == '[':
		return s.container()
	case c == '"':
		return s.text()
	case c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z':
		return s.literal()
	}
	return nil, syntax(c, "want a value")
}

// literal consumes a number, true, false or null.
func (s *stream) literal() ([]byte, error) {
	start, i := s.pos, s.pos
	for {
		for ; i < s.end; i++ {
			switch s.buf[i] {
			case ',', ']', '}', ' ', '\t', '\r', '\n':
				s.pos = i
				return s.buf[start:i], nil
			}
		}
		shift, err := s.fill(start)
		if err != nil {
			return nil, encoding.Inside(err)
		}
		start, i = start-shift, i-shift
	}
}

// text consumes a string including its quotes.
func (s *stream) text() ([]byte, error) {
	start, i := s.pos, s.pos+1
	for {
		j := closingQuote(s.buf[:s.end], start, i)
		if j >= 0 {
			s.pos = j + 1
			return s.buf[start:s.pos], nil
		}
		i = s.end
		shift, err := s.fill(start)
		if err != nil {
			return nil, encoding.Inside(err)
		}
		start, i = start-shift, i-shift
	}
}

// closingQuote returns where the string that opens at start ends, searching from i on, or -1.
func closingQuote(b []byte, start, i int) int {
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		escapes := i - 1
		for escapes > start && b[escapes] == '\\' {
			escapes--
		}
		if (i-escapes)&1 == 1 {
			return i
		}
		i++
	}
}

// container consumes an object or array. Nearly all of the time is spent here, so it skips strings
// with bytes.IndexByte.
func (s *stream) container() ([]byte, error) {
	start, i := s.pos, s.pos
	text := -1 // where the string around i opened
	s.stack = s.stack[:0]
	for {
		b := s.buf[:s.end]
		if text >= 0 {
			if i = closingQuote(b, text, i); i < 0 {
				i = len(b)
			} else {
				text = -1
				i++
			}
		}
		for i < len(b) {
			c := b[i]
			if !structural[c] {
				i++
				continue
			}
			switch c {
			case '"':
				j := closingQuote(b, i, i+1)
				if j < 0 {
					text, i = i, len(b)
					continue
				}
				i = j + 1
				continue
			case '{', '[':
				if len(s.stack) >= maxDepth {
					return nil, errors.New("malformed JSON: nested too deeply")
				}
				s.stack = append(s.stack, c+2) // its closing byte, in ASCII
			default:
				last := len(s.stack) - 1
				if s.stack[last] != c {
					return nil, syntax(c, "want "+string(rune(s.stack[last])))
				}
				s.stack = s.stack[:last]
				if last == 0 {
					s.pos = i + 1
					return b[start:s.pos], nil
				}
			}
			i++
		}
		shift, err := s.fill(start)
		if err != nil {
			return nil, encoding.Inside(err)
		}
		start, i = start-shift, i-shift
		if text >= 0 {
			text -= shift
		}
	}
}

// structural are the significant bytes outside of strings.
var structural = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true}

// atEnd reads the rest of the stream, which must be white space.
func (s *stream) atEnd() error {
	c, err := s.peek()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return syntax(c, "want the end")
}
