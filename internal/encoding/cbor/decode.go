package cbor

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// AppendJSON appends the JSON of one CBOR item, as apimachinery decodes it. It rejects what
// apimachinery rejects, with the same error, and otherwise produces JSON with the same meaning.
// Floats are written such that they remain floats. After an error it returns dst unchanged.
//
// Items of a map that is a Go struct for kube-apiserver are checked as if it were not.
func AppendJSON(dst, item []byte, shape Shape) ([]byte, error) {
	if err := wellFormed(item); err != nil {
		return dst, err
	}
	d := decoder{reader: reader{src: item}, dst: dst}
	if err := d.value(shape, 0); err != nil {
		return dst, err
	}
	return d.dst, nil
}

// decoder writes JSON while it reads a well-formed item.
type decoder struct {
	reader
	dst []byte
	// keys are those of the open maps, as JSON, to detect duplicates.
	keys []span
	// chunks holds a string that consists of several chunks.
	chunks []byte
}

// span is a part of dst.
type span struct{ from, to int }

// value reads an item. later is the tag that says how byte strings within it become text, 0 without
// one.
func (d *decoder) value(shape Shape, later uint64) error {
	later, isTime, err := d.tags(later)
	if err != nil {
		return err
	}
	if isTime {
		return d.time()
	}
	switch c := d.src[d.pos]; c & majorMask {
	case majorUint, majorNegInt:
		i, err := d.integer("int64")
		d.dst = strconv.AppendInt(d.dst, i, 10)
		return err
	case majorBytes:
		d.dst = appendQuoted(d.dst, textOf(d.byteString(), later, shape))
		return nil
	case majorText:
		text, err := d.textString()
		if err != nil {
			return err
		}
		if shape == bytesShape {
			return cannotUnmarshal(c, "[]uint8", "")
		}
		d.dst = appendQuoted(d.dst, text)
		return nil
	case majorArray:
		return d.array(shape, later)
	case majorMap:
		return d.object(shape, later)
	default:
		return d.simple()
	}
}

// tags skips the tags before an item. Unknown tags have no effect.
func (d *decoder) tags(later uint64) (effective uint64, isTime bool, err error) {
	for d.src[d.pos]&majorMask == majorTag {
		tag := d.argument()
		if err := admissible(tag, d.src[d.pos]); err != nil {
			return 0, false, err
		}
		switch tag {
		case tagTimeText, tagTimeNumber:
			return later, true, nil
		case tagBase64URL, tagBase64, tagBase16:
			later = tag
		}
	}
	return later, false, nil
}

// admissible checks that an item beginning with head may follow a tag.
func admissible(tag uint64, head byte) error {
	major := head & majorMask
	switch tag {
	case tagTimeText:
		if major != majorText {
			return fmt.Errorf("cbor: tag number 0 must be followed by text string, got %s", typeName(head))
		}
	case tagTimeNumber:
		float := head >= majorSimple|argument2 && head <= majorSimple|argument8
		if major != majorUint && major != majorNegInt && !float {
			return fmt.Errorf("cbor: tag number 1 must be followed by integer or floating-point number, got %s", typeName(head))
		}
	}
	return nil
}

// integer reads an integer into the Go type that the library would use.
func (d *decoder) integer(goType string) (int64, error) {
	c := d.src[d.pos]
	n := d.argument()
	switch negative := c&majorMask == majorNegInt; {
	case n <= math.MaxInt64 && negative:
		return ^int64(n), nil
	case n <= math.MaxInt64:
		return int64(n), nil
	case !negative:
		return 0, cannotUnmarshal(c, goType, strconv.FormatUint(n, 10)+" overflows Go's int64")
	case n == math.MaxUint64:
		return 0, cannotUnmarshal(c, goType, "-18446744073709551616 overflows Go's int64")
	default:
		return 0, cannotUnmarshal(c, goType, "-"+strconv.FormatUint(n+1, 10)+" overflows Go's int64")
	}
}

func (d *decoder) simple() error {
	c := d.src[d.pos]
	n := d.argument()
	switch info := c & infoMask; {
	case info == simpleFalse:
		d.dst = append(d.dst, "false"...)
	case info == simpleTrue:
		d.dst = append(d.dst, "true"...)
	case info == simpleNull:
		d.dst = append(d.dst, "null"...)
	case info <= argument1:
		return notAccepted(c, "simple value "+strconv.FormatUint(n, 10)+" is not recognized")
	default:
		d.dst = appendJSONFloat(d.dst, floatOf(info, n))
	}
	return nil
}

// floatOf returns the float of a simple item whose argument is n.
func floatOf(info byte, n uint64) float64 {
	switch info {
	case argument2:
		return fromFloat16(uint16(n))
	case argument4:
		return float64(math.Float32frombits(uint32(n)))
	}
	return math.Float64frombits(n)
}

// appendJSONFloat appends f like encoding/json, but with a fraction where encoding/json writes an
// integer, because it would be read as one.
func appendJSONFloat(dst []byte, f float64) []byte {
	start := len(dst)
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, f, format, -1, 64)
	if !bytes.ContainsAny(dst[start:], ".e") {
		dst = append(dst, ".0"...)
	}
	return dst
}

func (d *decoder) array(shape Shape, later uint64) error {
	d.dst = append(d.dst, '[')
	for n := d.length(); n.more(&d.reader); {
		if n.read > 1 {
			d.dst = append(d.dst, ',')
		}
		if err := d.value(shape, later); err != nil {
			return err
		}
	}
	d.dst = append(d.dst, ']')
	return nil
}

func (d *decoder) object(shape Shape, later uint64) error {
	first := len(d.keys)
	d.dst = append(d.dst, '{')
	for n := d.length(); n.more(&d.reader); {
		if n.read > 1 {
			d.dst = append(d.dst, ',')
		}
		from := len(d.dst)
		member, err := d.key(shape, later, first)
		if err != nil {
			return err
		}
		d.keys = append(d.keys, span{from, len(d.dst)})
		d.dst = append(d.dst, ':')
		if err := d.value(member, later); err != nil {
			return err
		}
	}
	d.dst = append(d.dst, '}')
	err := d.unique(d.keys[first:])
	d.keys = d.keys[:first]
	return err
}

// key reads the key of a map and returns the shape of its member. A null leaves the Go string that
// the library decodes keys into unchanged: empty, or the previous key.
func (d *decoder) key(shape Shape, later uint64, first int) (Shape, error) {
	later, _, err := d.tags(later)
	if err != nil {
		return 0, err
	}
	c := d.src[d.pos]
	var text []byte
	switch {
	case c&majorMask == majorBytes:
		text = textOf(d.byteString(), later, Untyped)
	case c&majorMask == majorText:
		if text, err = d.textString(); err != nil {
			return 0, err
		}
	case c == majorSimple|simpleNull:
		d.pos++
		if len(d.keys) > first {
			return 0, d.duplicate(d.keys[len(d.keys)-1], len(d.keys)-first)
		}
	case c&majorMask == majorSimple && c&infoMask <= argument1 && c&infoMask != simpleFalse && c&infoMask != simpleTrue:
		return 0, notAccepted(c, "simple value "+strconv.FormatUint(d.argument(), 10)+" is not recognized")
	default:
		return 0, cannotUnmarshal(c, "string", "")
	}
	d.dst = appendQuoted(d.dst, text)
	return shape.member(text), nil
}

// unique checks that no two keys of a map are the same.
func (d *decoder) unique(keys []span) error {
	const few = 16
	text := func(s span) []byte { return d.dst[s.from:s.to] }
	if len(keys) <= few {
		for i := range keys {
			for j := range i {
				if bytes.Equal(text(keys[i]), text(keys[j])) {
					return d.duplicate(keys[i], i)
				}
			}
		}
		return nil
	}
	sorted := slices.Clone(keys)
	slices.SortStableFunc(sorted, func(a, b span) int { return bytes.Compare(text(a), text(b)) })
	second := -1 // the first key that repeats an earlier one
	for i := 1; i < len(sorted); i++ {
		if at := sorted[i].from; bytes.Equal(text(sorted[i]), text(sorted[i-1])) && (second < 0 || at < second) {
			second = at
		}
	}
	if second < 0 {
		return nil
	}
	i := slices.IndexFunc(keys, func(s span) bool { return s.from == second })
	return d.duplicate(keys[i], i)
}

func (d *decoder) duplicate(key span, i int) error {
	text := string(d.dst[key.from+1 : key.to-1])
	return fmt.Errorf("cbor: found duplicate map key %q at map element index %d", text, i)
}

// byteString reads a byte string. The result is valid until the next call.
func (d *decoder) byteString() []byte {
	if d.src[d.pos]&infoMask != indefinite {
		return d.chunk()
	}
	d.chunks = d.chunks[:0]
	for d.pos++; d.src[d.pos] != breakCode; {
		d.chunks = append(d.chunks, d.chunk()...)
	}
	d.pos++
	return d.chunks
}

// chunk reads a string of definite length.
func (d *decoder) chunk() []byte {
	n := int(d.argument())
	d.pos += n
	return d.src[d.pos-n : d.pos]
}

var errUTF8 = errors.New("cbor: invalid UTF-8 string")

// textString reads a text string. Each of its chunks must be UTF-8.
func (d *decoder) textString() ([]byte, error) {
	if d.src[d.pos]&infoMask != indefinite {
		text := d.chunk()
		if !utf8.Valid(text) {
			return nil, errUTF8
		}
		return text, nil
	}
	d.chunks = d.chunks[:0]
	for d.pos++; d.src[d.pos] != breakCode; {
		chunk := d.chunk()
		if !utf8.Valid(chunk) {
			return nil, errUTF8
		}
		d.chunks = append(d.chunks, chunk...)
	}
	d.pos++
	return d.chunks, nil
}

// textOf returns the text of a byte string: its content, or, after a tag that expects a later
// encoding, its content so encoded. Where JSON has bytes, it is base64 whatever the tag.
func textOf(content []byte, later uint64, shape Shape) []byte {
	switch {
	case later == 0:
		return content
	case later == tagBase64 || shape == bytesShape:
		return base64.StdEncoding.AppendEncode(nil, content)
	case later == tagBase64URL:
		return base64.RawURLEncoding.AppendEncode(nil, content)
	}
	return hex.AppendEncode(nil, content)
}

// time reads the item after the tag of a time and writes it as RFC 3339 text.
func (d *decoder) time() error {
	var t time.Time
	c := d.src[d.pos]
	switch c & majorMask {
	case majorText:
		text, err := d.textString()
		if err != nil {
			return err
		}
		if t, err = time.Parse(time.RFC3339, string(text)); err != nil {
			return fmt.Errorf("cbor: cannot set %s for time.Time: %w", text, err)
		}
	case majorUint, majorNegInt:
		seconds, err := d.integer("time.Time")
		if err != nil {
			return err
		}
		t = time.Unix(seconds, 0).UTC()
	default:
		f := floatOf(c&infoMask, d.argument())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			break // the zero time (RFC 8949, section 3.4.2)
		}
		whole, fraction := math.Modf(f)
		if whole > math.MaxInt64 || whole < math.MinInt64 {
			return fmt.Errorf("cbor: cannot unmarshal primitives into Go value of type time.Time (%v overflows Go's int64)", f)
		}
		t = time.Unix(int64(whole), int64(fraction*1e9)).UTC()
	}
	text, err := t.MarshalText()
	if err != nil {
		return fmt.Errorf("cbor: decoded time cannot be represented in RFC3339 format with sub-second precision: %w", err)
	}
	d.dst = appendQuoted(d.dst, text)
	return nil
}
