package json

import (
	"bytes"
	"errors"
	"fmt"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

var (
	errNotObject    = errors.New("not a JSON object")
	errTrailing     = errors.New("data after the object")
	errLabels       = errors.New("metadata.labels is not a map of strings")
	errMetadataType = errors.New("metadata is not an object")
)

// scan is an encoding.Scan with the methods that fill it from JSON.
type scan encoding.Scan

// Scan implements encoding.Codec. It scans the object once from front to back.
func (Codec) Scan(s *encoding.Scan) error {
	b := s.Raw
	if len(b) == 0 || b[0] != '{' {
		return errNotObject
	}
	end := (*scan)(s).root()
	if s.Err != nil {
		return s.Err
	}
	if end < 0 {
		return malformed(b, end)
	}
	if end != len(b) {
		return errTrailing
	}
	s.ListOffset = typedListOffset(b)
	return nil
}

// typedListOffset returns the offset after `{"kind":"K","apiVersion":"A",`, with which typed
// objects begin, or 0 for any other beginning. The input is well-formed JSON.
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

// root scans the members of the top-level object.
func (sc *scan) root() int {
	return sc.members(0, maxDepth, func(sc *scan, key []byte, i, depth int) int {
		if string(key) == "metadata" {
			return sc.metadata(i, depth)
		}
		return sc.field(sc.Fields.Named(key), i, depth)
	})
}

// members calls visit for each member of the object that begins at sc.Raw[i], with the position of
// the value; visit returns the position after the value. The visit functions capture nothing, so
// that they are not allocated.
func (sc *scan) members(i, depth int, visit func(sc *scan, key []byte, i, depth int) int) int {
	b := sc.Raw
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
		sc.Member = start - 1
		if i = visit(sc, key, i, depth); i < 0 || sc.Err != nil {
			return i
		}
		var more bool
		if i, more = nextMember(b, i, '}'); !more {
			return i
		}
	}
}

// field reads the value at i, which f describes; a nil f has nothing of interest.
func (sc *scan) field(f *encoding.Field, i, depth int) int {
	b := sc.Raw
	if f == nil || i >= len(b) {
		return skipValue(b, i, depth)
	}
	if f.Slot != encoding.NoSlot {
		return sc.value(f.Slot, i, depth)
	}
	if b[i] != '{' { // null, or another shape than expected
		return skipValue(b, i, depth)
	}
	return sc.nested(f, i, depth)
}

// nested scans an object on the way to selectable fields.
func (sc *scan) nested(f *encoding.Field, i, depth int) int {
	// The field is stored in the scan, because a closure over it would allocate.
	outer := sc.At
	sc.At = f
	i = sc.members(i, depth, func(sc *scan, key []byte, i, depth int) int {
		return sc.field(sc.At.Named(key), i, depth)
	})
	sc.At = outer
	return i
}

// value stores the text of a selectable field's value.
func (sc *scan) value(slot, i, depth int) int {
	b := sc.Raw
	if b[i] == '"' {
		text, end := sc.text(i)
		sc.Values[slot] = text
		return end
	}
	end := skipValue(b, i, depth)
	if end < 0 {
		return end
	}
	sc.Values[slot], sc.Err = valueText(b[i:end])
	return end
}

// text reads the string at i, which begins with a quote.
func (sc *scan) text(i int) (text []byte, end int) {
	end, escaped := skipString(sc.Raw, i)
	if end < 0 {
		return nil, end
	}
	text = sc.Raw[i+1 : end-1]
	if escaped {
		text = unescape(text)
	}
	return text, end
}

// metadata scans the value of metadata.
func (sc *scan) metadata(i, depth int) int {
	if i < len(sc.Raw) && sc.Raw[i] != '{' {
		sc.Err = errMetadataType
		return i
	}
	sc.ManagedStart, sc.ManagedEnd = 0, 0
	end := sc.members(i, depth, (*scan).metaMember)
	sc.MetaStart, sc.MetaEnd = int32(i), int32(end)
	(*encoding.Scan)(sc).EndManaged(true)
	return end
}

func (sc *scan) metaMember(key []byte, i, depth int) int {
	var text *[]byte
	switch string(key) {
	case "name":
		text = &sc.Name
	case "namespace":
		text = &sc.Namespace
	case "uid":
		text = &sc.UID
	case "resourceVersion":
		text = &sc.ResourceVersion
	case "creationTimestamp":
		return sc.time(i, depth)
	case "labels":
		return sc.labels(i, depth)
	case "managedFields":
		return sc.managed(i, depth)
	default:
		return skipValue(sc.Raw, i, depth)
	}
	end, ok := sc.stringOrNull(text, i, depth)
	if end >= 0 && !ok {
		sc.Err = fmt.Errorf("metadata.%s is not a string", key)
	}
	return end
}

// stringOrNull reads the string at i into text, null as "". ok is false for any other value, which
// is skipped.
func (sc *scan) stringOrNull(text *[]byte, i, depth int) (end int, ok bool) {
	b := sc.Raw
	if i < len(b) && b[i] == '"' {
		*text, end = sc.text(i)
		return end, true
	}
	*text = nil
	end = skipValue(b, i, depth)
	return end, end >= 0 && b[i] == 'n'
}

// managed records where managedFields are.
func (sc *scan) managed(i, depth int) int {
	b, start := sc.Raw, sc.Member
	end := skipValue(b, i, depth)
	if end < 0 {
		return end
	}
	before, after := start-1, skipSpace(b, end)
	for before > 0 && isSpace(b[before]) {
		before--
	}
	switch {
	case b[before] == ',':
		(*encoding.Scan)(sc).FoundManaged(before, end)
	case after < len(b) && b[after] == ',':
		(*encoding.Scan)(sc).FoundManaged(start, after+1)
	default:
		(*encoding.Scan)(sc).FoundManaged(start, end)
	}
	return end
}

func (sc *scan) time(i, depth int) int {
	var text []byte
	end, ok := sc.stringOrNull(&text, i, depth)
	if end < 0 {
		return end
	}
	sc.Creation = 0
	if !ok {
		sc.Err = errors.New("metadata.creationTimestamp is not a string")
	} else if len(text) > 0 {
		t, err := time.Parse(time.RFC3339, string(text))
		if err != nil {
			sc.Err = fmt.Errorf("metadata.creationTimestamp: %w", err)
		}
		sc.Creation = t.Unix()
	}
	return end
}

func (sc *scan) labels(i, depth int) int {
	sc.Labels = sc.Labels[:0]
	if i < len(sc.Raw) && sc.Raw[i] != '{' {
		end := skipValue(sc.Raw, i, depth)
		if end >= 0 && sc.Raw[i] != 'n' {
			sc.Err = errLabels
		}
		return end
	}
	return sc.members(i, depth, func(sc *scan, key []byte, i, depth int) int {
		var value []byte
		end, ok := sc.stringOrNull(&value, i, depth)
		if end >= 0 && !ok {
			sc.Err = errLabels
		}
		sc.Labels = append(sc.Labels, encoding.Label{Key: key, Value: value})
		return end
	})
}

// unescape decodes the escape sequences of a scanned string. Invalid UTF-16 becomes U+FFFD, as in
// encoding/json.
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
