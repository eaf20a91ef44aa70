package object

import (
	"bytes"
	"errors"
	"fmt"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

var (
	errNotObject    = errors.New("not a JSON object")
	errTrailing     = errors.New("data after the object")
	errLabels       = errors.New("metadata.labels is not a map of strings")
	errMetadataType = errors.New("metadata is not an object")
)

// json scans sc.raw as one JSON object, once from front to back.
func (sc *scan) json() error {
	b := sc.raw
	if len(b) == 0 || b[0] != '{' {
		return errNotObject
	}
	end := sc.jsonRoot()
	if sc.err != nil {
		return sc.err
	}
	if end < 0 {
		return malformed(b, end)
	}
	if end != len(b) {
		return errTrailing
	}
	sc.listOffset = typedListOffset(b)
	return nil
}

// typedListOffset returns the offset after `{"kind":"K","apiVersion":"A",`, with
// which typed objects begin, or 0 for any other beginning.
// The input is well-formed JSON.
func typedListOffset(b []byte) int {
	const kind, apiVersion = `{"kind":"`, `,"apiVersion":"`
	if !bytes.HasPrefix(b, []byte(kind)) {
		return 0
	}
	i, _ := skipString(b, len(kind)-1)
	if !bytes.HasPrefix(b[i:], []byte(apiVersion)) {
		return 0
	}
	if i, _ = skipString(b, i+len(apiVersion)-1); i >= len(b) || b[i] != ',' {
		return 0
	}
	return i + 1
}

// jsonRoot scans the members of the top-level object.
func (sc *scan) jsonRoot() int {
	return sc.members(0, maxJSONDepth, func(sc *scan, key []byte, i, depth int) int {
		if string(key) == "metadata" {
			return sc.jsonMetadata(i, depth)
		}
		return sc.jsonField(sc.schema.json.find(key), i, depth)
	})
}

// members calls visit for each member of the object that begins at sc.raw[i],
// with the position of the value; visit returns the position after the value.
// The functions given to it capture nothing, so that none is allocated.
func (sc *scan) members(i, depth int, visit func(sc *scan, key []byte, i, depth int) int) int {
	b := sc.raw
	if depth--; depth < 0 {
		return ^i
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return ^i
		}
		start := i + 1
		end, escaped := skipString(b, i)
		if end < 0 {
			return end
		}
		key := b[start : end-1]
		if escaped {
			key = unescape(key)
		}
		if i = skipColon(b, end); i < 0 {
			return i
		}
		if i = visit(sc, key, i, depth); i < 0 || sc.err != nil {
			return i
		}
		var more bool
		if i, more = nextMember(b, i, '}'); !more {
			return i
		}
	}
}

// jsonField reads the value at i, which node (nil: nothing of interest) describes.
func (sc *scan) jsonField(node *jsonNode, i, depth int) int {
	b := sc.raw
	if node == nil || i >= len(b) {
		return skipValue(b, i, depth)
	}
	if node.slot != noSlot {
		return sc.jsonValue(node.slot, i, depth)
	}
	if b[i] != '{' { // null or a shape without our fields
		return skipValue(b, i, depth)
	}
	return sc.nested(node, i, depth)
}

// nested scans an object on the way to selectable fields.
func (sc *scan) nested(node *jsonNode, i, depth int) int {
	// The node travels in the scan, because a closure over it would allocate.
	outer := sc.node
	sc.node = node
	i = sc.members(i, depth, func(sc *scan, key []byte, i, depth int) int {
		return sc.jsonField(sc.node.find(key), i, depth)
	})
	sc.node = outer
	return i
}

// jsonValue keeps the text of a selectable field's value.
func (sc *scan) jsonValue(slot, i, depth int) int {
	b := sc.raw
	if b[i] == '"' {
		text, end := sc.jsonString(i)
		sc.values[slot] = text
		return end
	}
	end := skipValue(b, i, depth)
	if end < 0 {
		return end
	}
	sc.values[slot], sc.err = valueText(b[i:end])
	return end
}

// jsonString reads the string at i (known to begin with a quote).
func (sc *scan) jsonString(i int) (text []byte, end int) {
	end, escaped := skipString(sc.raw, i)
	if end < 0 {
		return nil, end
	}
	text = sc.raw[i+1 : end-1]
	if escaped {
		text = unescape(text)
	}
	return text, end
}

// jsonMetadata scans the value of metadata.
func (sc *scan) jsonMetadata(i, depth int) int {
	if i < len(sc.raw) && sc.raw[i] != '{' {
		sc.err = errMetadataType
		return i
	}
	end := sc.members(i, depth, (*scan).jsonMetaMember)
	sc.metaStart, sc.metaEnd = i, end
	return end
}

func (sc *scan) jsonMetaMember(key []byte, i, depth int) int {
	var text *[]byte
	switch string(key) {
	case "name":
		text = &sc.name
	case "namespace":
		text = &sc.namespace
	case "uid":
		text = &sc.uid
	case "resourceVersion":
		text = &sc.rv
	case "creationTimestamp":
		return sc.jsonTime(i, depth)
	case "labels":
		return sc.jsonLabels(i, depth)
	default:
		return skipValue(sc.raw, i, depth)
	}
	end, ok := sc.jsonStringOrNull(text, i, depth)
	if end >= 0 && !ok {
		sc.err = fmt.Errorf("metadata.%s is not a string", key)
	}
	return end
}

// jsonStringOrNull reads the string at i into text, null as "". ok is false for
// any other value, which is skipped.
func (sc *scan) jsonStringOrNull(text *[]byte, i, depth int) (end int, ok bool) {
	b := sc.raw
	if i < len(b) && b[i] == '"' {
		*text, end = sc.jsonString(i)
		return end, true
	}
	*text = nil
	end = skipValue(b, i, depth)
	return end, end >= 0 && b[i] == 'n'
}

func (sc *scan) jsonTime(i, depth int) int {
	var text []byte
	end, ok := sc.jsonStringOrNull(&text, i, depth)
	if end < 0 {
		return end
	}
	sc.creation = 0
	if !ok {
		sc.err = errors.New("metadata.creationTimestamp is not a string")
	} else if len(text) > 0 {
		t, err := time.Parse(time.RFC3339, string(text))
		if err != nil {
			sc.err = fmt.Errorf("metadata.creationTimestamp: %w", err)
		}
		sc.creation = t.Unix()
	}
	return end
}

func (sc *scan) jsonLabels(i, depth int) int {
	sc.labels = sc.labels[:0]
	if i < len(sc.raw) && sc.raw[i] != '{' {
		end := skipValue(sc.raw, i, depth)
		if end >= 0 && sc.raw[i] != 'n' {
			sc.err = errLabels
		}
		return end
	}
	return sc.members(i, depth, func(sc *scan, key []byte, i, depth int) int {
		var value []byte
		end, ok := sc.jsonStringOrNull(&value, i, depth)
		if end >= 0 && !ok {
			sc.err = errLabels
		}
		sc.labels = append(sc.labels, labelBytes{key, value})
		return end
	})
}

// unescape decodes the escape sequences of a scanned string; what is no valid
// UTF-16 becomes U+FFFD, as in encoding/json.
func unescape(s []byte) []byte {
	out := make([]byte, 0, len(s))
	for {
		n := bytes.IndexByte(s, '\\')
		if n < 0 {
			return append(out, s...)
		}
		out = append(out, s[:n]...)
		switch c := s[n+1]; c {
		case 'u':
			r, size := unescapeRune(s[n:])
			out = utf8.AppendRune(out, r)
			s = s[n+size:]
			continue
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		default: // quote, backslash, slash
			out = append(out, c)
		}
		s = s[n+2:]
	}
}

// unescapeRune decodes \uXXXX, or a pair of them that forms one character.
func unescapeRune(s []byte) (r rune, size int) {
	r = hex4(s[2:])
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(s[8:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return utf8.RuneError, 6
}

func hex4(s []byte) rune {
	return hexDigit(s[0])<<12 | hexDigit(s[1])<<8 | hexDigit(s[2])<<4 | hexDigit(s[3])
}
