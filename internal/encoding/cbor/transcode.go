package cbor

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// maxDepth is how deep kube-apiserver allows objects and arrays to be nested, in JSON and in CBOR.
const maxDepth = 10000

// SyntaxError reports where JSON is malformed.
type SyntaxError struct {
	Offset int
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("JSON, byte %d: %s", e.Offset, e.Reason)
}

// Append appends the CBOR of a JSON value, without SelfDescribed. After an error it returns dst
// unchanged.
func Append(dst, json []byte, shape Shape) ([]byte, error) {
	t := transcoder{src: json, dst: dst}
	t.space()
	err := t.value(shape, maxDepth)
	if err != nil {
		return dst, err
	}
	if t.space(); t.pos < len(json) {
		return dst, t.fail("more than one value")
	}
	return t.dst, nil
}

// transcoder reads JSON once and writes CBOR as it goes.
type transcoder struct {
	src []byte
	pos int
	dst []byte
}

func (t *transcoder) fail(reason string) error { return &SyntaxError{t.pos, reason} }

func (t *transcoder) space() {
	for t.pos < len(t.src) {
		switch t.src[t.pos] {
		case ' ', '\t', '\r', '\n':
			t.pos++
		default:
			return
		}
	}
}

// next returns the current byte, 0 at the end.
func (t *transcoder) next() byte {
	if t.pos < len(t.src) {
		return t.src[t.pos]
	}
	return 0
}

// value transcodes a value, from its first byte.
func (t *transcoder) value(shape Shape, depth int) error {
	if shape == rawShape {
		return t.raw(depth)
	}
	switch c := t.next(); c {
	case '{':
		return t.object(shape, depth-1)
	case '[':
		return t.array(shape, depth-1)
	case '"':
		if shape == bytesShape {
			return t.base64()
		}
		_, err := t.string()
		return err
	case 't':
		return t.literal("true", simpleTrue)
	case 'f':
		return t.literal("false", simpleFalse)
	case 'n':
		return t.literal("null", simpleNull)
	default:
		if c == '-' || c-'0' <= 9 {
			return t.number(shape)
		}
		return t.fail("a value is expected")
	}
}

func (t *transcoder) object(shape Shape, depth int) error {
	if depth < 0 {
		return t.fail("exceeded max depth")
	}
	start := len(t.dst)
	t.dst = append(t.dst, majorMap) // for up to 23 members
	t.pos++
	t.space()
	if t.next() == '}' {
		t.pos++
		return nil
	}
	for n := 1; ; n++ {
		if t.next() != '"' {
			return t.fail("a key is expected")
		}
		key, err := t.string()
		if err != nil {
			return err
		}
		member := Untyped
		if shape > 0 {
			member = shape.member(t.dst[key:])
		}
		if t.space(); t.next() != ':' {
			return t.fail("a colon is expected")
		}
		t.pos++
		t.space()
		if err := t.value(member, depth); err != nil {
			return err
		}
		more, err := t.more('}')
		if err != nil {
			return err
		}
		if !more {
			t.dst = setHead(t.dst, start, 1, majorMap, n)
			return nil
		}
	}
}

func (t *transcoder) array(shape Shape, depth int) error {
	if depth < 0 {
		return t.fail("exceeded max depth")
	}
	start := len(t.dst)
	t.dst = append(t.dst, majorArray)
	t.pos++
	t.space()
	if t.next() == ']' {
		t.pos++
		return nil
	}
	for n := 1; ; n++ {
		if err := t.value(shape, depth); err != nil {
			return err
		}
		more, err := t.more(']')
		if err != nil {
			return err
		}
		if !more {
			t.dst = setHead(t.dst, start, 1, majorArray, n)
			return nil
		}
	}
}

// more reads what follows a member: a comma, after which another member follows, or the end.
func (t *transcoder) more(closing byte) (bool, error) {
	t.space()
	switch t.next() {
	case ',':
		t.pos++
		t.space()
		return true, nil
	case closing:
		t.pos++
		return false, nil
	}
	return false, t.fail("a comma or the end of the object or array is expected")
}

func (t *transcoder) literal(word string, simple byte) error {
	for i := range len(word) {
		if t.pos+i >= len(t.src) || t.src[t.pos+i] != word[i] {
			return t.fail("a value is expected")
		}
	}
	t.pos += len(word)
	t.dst = append(t.dst, majorSimple|simple)
	return nil
}

// raw transcodes JSON that a client wrote. The last of two members with the same key counts, as for
// apimachinery, which does the decoding here. Such JSON is rare and short.
func (t *transcoder) raw(depth int) error {
	from, start := t.pos, len(t.dst)
	if err := t.value(Untyped, depth); err != nil {
		return err
	}
	var v any
	if err := utiljson.Unmarshal(t.src[from:t.pos], &v); err != nil {
		return &SyntaxError{from, err.Error()}
	}
	item, err := direct.Marshal(v)
	if err != nil {
		return &SyntaxError{from, err.Error()}
	}
	t.dst = append(t.dst[:start], item...)
	return nil
}

// number transcodes a number: to an integer if it is written as one and fits into 64 bits.
func (t *transcoder) number(shape Shape) error {
	from := t.pos
	integer, err := t.scanNumber()
	if err != nil {
		return err
	}
	text := t.src[from:t.pos]
	if integer && shape != floatShape {
		if i, ok := parseInt(text); ok {
			t.dst = appendInt(t.dst, i)
			return nil
		}
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return &SyntaxError{from, fmt.Sprintf("number %s is too large", text)}
	}
	t.dst = appendFloat(t.dst, f)
	return nil
}

// scanNumber skips a number and reports whether it has no fraction or exponent.
func (t *transcoder) scanNumber() (integer bool, err error) {
	if t.next() == '-' {
		t.pos++
	}
	if t.next() == '0' {
		t.pos++
	} else if err := t.digits(); err != nil {
		return false, err
	}
	integer = true
	if t.next() == '.' {
		integer = false
		t.pos++
		if err := t.digits(); err != nil {
			return false, err
		}
	}
	if t.next()|0x20 == 'e' {
		integer = false
		t.pos++
		if c := t.next(); c == '+' || c == '-' {
			t.pos++
		}
		return false, t.digits()
	}
	return integer, nil
}

// digits skips one or more digits.
func (t *transcoder) digits() error {
	from := t.pos
	for t.pos < len(t.src) && t.src[t.pos]-'0' <= 9 {
		t.pos++
	}
	if t.pos == from {
		return t.fail("a digit is expected")
	}
	return nil
}

// parseInt is strconv.ParseInt for digits that may follow a sign.
func parseInt(text []byte) (i int64, ok bool) {
	const certain = 18 // numbers of this many digits always fit
	if len(text) > certain {
		i, err := strconv.ParseInt(string(text), 10, 64)
		return i, err == nil
	}
	negative := text[0] == '-'
	if negative {
		text = text[1:]
	}
	for _, c := range text {
		i = i*10 + int64(c-'0')
	}
	if negative {
		i = -i
	}
	return i, true
}

// base64 transcodes a string that stands for bytes.
func (t *transcoder) base64() error {
	from, start := t.pos, len(t.dst)
	text, err := t.string()
	if err != nil {
		return err
	}
	// Decode after the text, then move the result over it.
	end := len(t.dst)
	t.dst = slices.Grow(t.dst, base64.StdEncoding.DecodedLen(end-text))
	n, err := base64.StdEncoding.Decode(t.dst[end:cap(t.dst)], t.dst[text:])
	if err != nil {
		return &SyntaxError{from, err.Error()}
	}
	decoded := t.dst[end : end+n]
	t.dst = append(t.dst[:start], majorTag|tagBase64)
	t.dst = appendHead(t.dst, majorBytes, uint64(n))
	t.dst = append(t.dst, decoded...)
	return nil
}
