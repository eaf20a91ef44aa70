package cbor

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// string reads a string from its opening quote and writes it as a byte string, whose content begins
// at t.dst[content:].
func (t *transcoder) string() (content int, err error) {
	from := t.pos + 1
	end, plain := scanString(t.src, from)
	if !plain {
		return t.escapedString(from)
	}
	text := t.src[from:end]
	t.dst = appendHead(t.dst, majorBytes, uint64(len(text)))
	content = len(t.dst)
	t.dst = append(t.dst, text...)
	t.pos = end + 1
	return content, nil
}

// scanString finds the quote that ends the string whose content begins at b[i]. plain is false if
// its bytes need conversion (escape sequences, invalid UTF-8), or if the string does not end.
func scanString(b []byte, i int) (end int, plain bool) {
	const tops = 0x8080808080808080
	from := i
	var seen uint64 // the union of the bytes' bits
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		if m := stops(w); m != 0 {
			n := bits.TrailingZeros64(m) &^ 7
			seen |= w & (1<<n - 1)
			i += n >> 3
			break
		}
		seen |= w
		i += 8
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		seen |= uint64(b[i])
		i++
	}
	if i >= len(b) || b[i] != '"' {
		return i, false
	}
	return i, seen&tops == 0 || utf8.Valid(b[from:i])
}

// stops marks, by their top bits, the bytes of w that end or interrupt a string: quote, backslash,
// control characters. Only the lowest mark is exact.
func stops(w uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, slash := w^(ones*'"'), w^(ones*'\\')
	return ((w-ones*' ')&^w | (quote-ones)&^quote | (slash-ones)&^slash) & tops
}

// escapedString reads a string from its first byte like encoding/json: invalid UTF-8 and half a
// surrogate pair become U+FFFD.
func (t *transcoder) escapedString(from int) (content int, err error) {
	start := len(t.dst)
	const reserved = 2 // bytes for the head, which is set when the length is known
	t.dst = append(t.dst, 0, 0)
	for t.pos = from; ; {
		switch c := t.next(); {
		case c == '"':
			t.pos++
			n := len(t.dst) - start - reserved
			t.dst = setHead(t.dst, start, reserved, majorBytes, n)
			return start + headSize(n), nil
		case c == '\\':
			if err := t.escape(); err != nil {
				return 0, err
			}
		case t.pos >= len(t.src):
			return 0, t.fail("a string does not end")
		case c < ' ':
			return 0, t.fail("a control character in a string")
		case c < utf8.RuneSelf:
			end := t.pos + 1
			for end < len(t.src) && isPlain(t.src[end]) {
				end++
			}
			t.dst = append(t.dst, t.src[t.pos:end]...)
			t.pos = end
		default:
			r, size := utf8.DecodeRune(t.src[t.pos:])
			t.dst = utf8.AppendRune(t.dst, r)
			t.pos += size
		}
	}
}

// isPlain reports whether a byte of a JSON string is a character that stands for itself.
func isPlain(c byte) bool { return c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' }

// escape reads an escape sequence.
func (t *transcoder) escape() error {
	t.pos++
	c := t.next()
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return t.escapedRune()
	default:
		return t.fail("no such escape sequence")
	}
	t.dst = append(t.dst, c)
	t.pos++
	return nil
}

// escapedRune reads u and four digits, and the second half of a surrogate pair.
func (t *transcoder) escapedRune() error {
	r := hex4(t.src, t.pos+1)
	if r < 0 {
		return t.fail("four hexadecimal digits are expected")
	}
	t.pos += 5
	if utf16.IsSurrogate(r) {
		second := rune(-1)
		if t.next() == '\\' && t.pos+1 < len(t.src) && t.src[t.pos+1] == 'u' {
			second = hex4(t.src, t.pos+2)
		}
		// DecodeRune returns U+FFFD for an invalid pair. Then the second one stands for itself.
		if r = utf16.DecodeRune(r, second); r != utf8.RuneError {
			t.pos += 6
		}
	}
	t.dst = utf8.AppendRune(t.dst, r)
	return nil
}

// hex4 returns the value of four hexadecimal digits at b[i], -1 if there are none.
func hex4(b []byte, i int) rune {
	if i+4 > len(b) {
		return -1
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20-'a' <= 5:
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}
