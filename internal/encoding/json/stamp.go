package json

import (
	"errors"
	"strconv"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

var errVersionType = errors.New("metadata.resourceVersion is not a string")

// Stamp implements encoding.Codec.
func (Codec) Stamp(o encoding.Encoded, rv uint64) (encoding.Encoded, error) {
	metadata := o.Raw[o.MetaStart:o.MetaEnd]
	start, end := member(metadata, "resourceVersion")
	if start < 0 {
		return encoding.Encoded{}, encoding.ErrNoVersion
	}
	if metadata[start] != '"' {
		return encoding.Encoded{}, errVersionType
	}
	start, end = int(o.MetaStart)+start+1, int(o.MetaStart)+end-1 // inside the quotes
	var room [20]byte
	text := strconv.AppendUint(room[:0], rv, 10)
	raw := make([]byte, 0, len(o.Raw)+len(text)-(end-start))
	raw = append(append(append(raw, o.Raw[:start]...), text...), o.Raw[end:]...)
	longer := int32(len(raw) - len(o.Raw))
	if int(o.ManagedStart) >= end {
		o.ManagedStart, o.ManagedEnd = o.ManagedStart+longer, o.ManagedEnd+longer
	}
	o.Raw, o.MetaEnd = raw, o.MetaEnd+longer
	return o, nil
}

// member finds the value of a member of a well-formed JSON object: its start and end, or -1.
func member(object []byte, name string) (start, end int) {
	start, end = -1, -1
	eachMember(object, func(key []byte, s, e int) {
		if string(key) == name {
			start, end = s, e
		}
	})
	return start, end
}

// eachMember calls visit with the unescaped key and the position of the value of each member of a
// well-formed JSON object.
func eachMember(object []byte, visit func(key []byte, start, end int)) {
	i := skipSpace(object, 1)
	for more := i < len(object) && object[i] == '"'; more; {
		keyEnd, escaped := skipString(object, i)
		if keyEnd < 0 {
			return
		}
		key := object[i+1 : keyEnd-1]
		if escaped {
			key = unescape(key)
		}
		start := skipColon(object, keyEnd)
		if start < 0 {
			return
		}
		end := skipValue(object, start, maxDepth)
		if end < 0 {
			return
		}
		visit(key, start, end)
		i, more = nextMember(object, end, '}')
	}
}
