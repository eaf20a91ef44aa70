package json

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// maxDepth is how deep JSON may be nested, the limit of encoding/json.
const maxDepth = 10000

// errTruncated means that the input ends within a value.
var errTruncated = errors.New("unexpected end of JSON")

// The scanning functions below take the input and a position and return the position after what
// they read. A negative result ^p means malformed input at p: an error value per call would cost
// more than the scan.

// malformed turns a negative position into the error.
func malformed(b []byte, pos int) error {
	if p := ^pos; p < len(b) {
		return fmt.Errorf("malformed JSON at byte %d: unexpected %q", p, b[p])
	}
	return errTruncated
}

// skip returns the position after the JSON value that b begins with, including leading white space.
// It checks the whole grammar, but not UTF-8. If the input ends within the value it returns an
// error.
func skip(b []byte) (int, error) {
	end := skipValue(b, skipSpace(b, 0), maxDepth)
	if end < 0 {
		return 0, malformed(b, end)
	}
	return end, nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// skipValue skips the value whose first byte is b[i].
func skipValue(b []byte, i, depth int) int {
	if i >= len(b) {
		return ^i
	}
	switch c := b[i]; c {
	case '"':
		end, _ := skipString(b, i)
		return end
	case '{':
		return skipObject(b, i, depth)
	case '[':
		return skipArray(b, i, depth)
	case 't':
		return skipLiteral(b, i, "true")
	case 'f':
		return skipLiteral(b, i, "false")
	case 'n':
		return skipLiteral(b, i, "null")
	default:
		if c == '-' || c-'0' <= 9 {
			return skipNumber(b, i)
		}
		return ^i
	}
}

func skipObject(b []byte, i, depth int) int {
	if depth--; depth < 0 {
		return ^i
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		if i = skipKey(b, i); i < 0 {
			return i
		}
		if i = skipValue(b, i, depth); i < 0 {
			return i
		}
		var more bool
		if i, more = nextMember(b, i, '}'); !more {
			return i
		}
	}
}

func skipArray(b []byte, i, depth int) int {
	if depth--; depth < 0 {
		return ^i
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = skipValue(b, i, depth); i < 0 {
			return i
		}
		var more bool
		if i, more = nextMember(b, i, ']'); !more {
			return i
		}
	}
}

// skipKey skips an object's key with its colon, up to the value.
func skipKey(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return ^i
	}
	if i, _ = skipString(b, i); i < 0 {
		return i
	}
	return skipColon(b, i)
}

func skipColon(b []byte, i int) int {
	if i < len(b) && b[i] != ':' {
		i = skipSpace(b, i)
	}
	if i >= len(b) || b[i] != ':' {
		return ^i
	}
	if i++; i < len(b) && b[i] <= ' ' {
		i = skipSpace(b, i)
	}
	return i
}

// nextMember reads what follows a member: more is true and pos the next member, or pos is after the
// closing bracket, or malformed.
func nextMember(b []byte, i int, closing byte) (pos int, more bool) {
	if i < len(b) && b[i] <= ' ' {
		i = skipSpace(b, i)
	}
	if i >= len(b) {
		return ^i, false
	}
	switch b[i] {
	case ',':
		if i++; i < len(b) && b[i] <= ' ' {
			i = skipSpace(b, i)
		}
		return i, true
	case closing:
		return i + 1, false
	}
	return ^i, false
}

// skipString skips the string whose opening quote is b[i], eight bytes at a time. escaped reports
// whether it contains escape sequences.
func skipString(b []byte, i int) (end int, escaped bool) {
	i++
	for {
		for i+8 <= len(b) {
			if m := stringStops(binary.LittleEndian.Uint64(b[i:])); m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
			i++
		}
		if i >= len(b) || b[i] < ' ' {
			return ^i, escaped
		}
		if b[i] == '"' {
			return i + 1, escaped
		}
		escaped = true
		if i = skipEscape(b, i); i < 0 {
			return i, true
		}
	}
}

// stringStops marks, by their top bits, the bytes of w that end or interrupt a string: quote,
// backslash, control characters. Only the lowest mark is exact.
func stringStops(w uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, slash := w^(ones*'"'), w^(ones*'\\')
	return ((w-ones*' ')&^w | (quote-ones)&^quote | (slash-ones)&^slash) & tops
}

func skipEscape(b []byte, i int) int {
	if i+1 >= len(b) {
		return ^len(b)
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if k >= len(b) || hexDigit(b[k]) < 0 {
				return ^k
			}
		}
		return i + 6
	}
	return ^(i + 1)
}

func hexDigit(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
}

func skipLiteral(b []byte, i int, word string) int {
	for k := range len(word) {
		if i+k >= len(b) || b[i+k] != word[k] {
			return ^(i + k)
		}
	}
	return i + len(word)
}

func skipNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = skipDigits(b, i); i < 0 {
		return i
	}
	if i < len(b) && b[i] == '.' {
		if i = skipDigits(b, i+1); i < 0 {
			return i
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		i = skipDigits(b, i)
	}
	return i
}

// skipDigits skips one or more digits.
func skipDigits(b []byte, i int) int {
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	if i == start {
		return ^i
	}
	return i
}
