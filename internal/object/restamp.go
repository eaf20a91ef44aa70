package object

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/kubeweir/kubeweir/internal/api"
	"google.golang.org/protobuf/encoding/protowire"
)

var errNoRVPlace = errors.New("metadata.resourceVersion not found")

// AtRV returns o as if it had been written at rv: the same object with another
// resourceVersion in its bytes, under an ID of its own. A watch sends it when an
// object leaves the watcher's selector: the state that still matched, with the
// version of the change. o stays as it is.
func (o *Object) AtRV(enc api.Encoding, rv uint64) (*Object, error) {
	if o.RV == rv {
		return o, nil
	}
	text := strconv.AppendUint(make([]byte, 0, 20), rv, 10)
	c := *o
	c.RV = rv
	c.ID = lastID.Add(1)
	var ok bool
	if enc == api.Protobuf {
		ok = c.stampProtobuf(o, text)
	} else {
		ok = c.stampJSON(o, text)
	}
	if !ok {
		return nil, fmt.Errorf("restamp %s: %w", o.Key, errNoRVPlace)
	}
	return &c, nil
}

// stampJSON sets c.Raw to that of o with another version.
func (c *Object) stampJSON(o *Object, rv []byte) bool {
	start, end := jsonMember(o.Metadata(), "resourceVersion")
	if start < 0 || o.Metadata()[start] != '"' {
		return false
	}
	start, end = o.MetaStart+start+1, o.MetaStart+end-1 // inside the quotes
	raw := make([]byte, 0, len(o.Raw)+len(rv)-(end-start))
	raw = append(append(append(raw, o.Raw[:start]...), rv...), o.Raw[end:]...)
	c.MetaEnd += len(raw) - len(o.Raw)
	c.Raw = raw
	return true
}

// stampProtobuf sets c.Raw to that of o with another version. The length of the
// metadata, which precedes it, may change its own size.
func (c *Object) stampProtobuf(o *Object, rv []byte) bool {
	head := o.MetaStart - bytesFieldSize(numMetadata, len(o.Metadata())) + len(o.Metadata())
	if head < 0 || o.Raw[head] != numMetadata<<3|byte(protowire.BytesType) {
		return false
	}
	meta := rewriteMeta(o.Metadata(), rv, nil, func(protowire.Number) bool { return true })
	raw := append(make([]byte, 0, len(o.Raw)+len(rv)+2), o.Raw[:head]...)
	raw = appendBytesField(raw, numMetadata, meta)
	c.MetaEnd = len(raw)
	c.MetaStart = c.MetaEnd - len(meta)
	c.Raw = append(raw, o.Raw[o.MetaEnd:]...)
	return true
}

// jsonMember finds the value of a member of a well-formed JSON object: its start
// and end, or -1.
func jsonMember(object []byte, name string) (start, end int) {
	start, end = -1, -1
	eachMember(object, func(key []byte, s, e int) {
		if string(key) == name {
			start, end = s, e
		}
	})
	return start, end
}

// eachMember calls visit with the unescaped key and the place of the value of
// each member of a well-formed JSON object.
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
		end := skipValue(object, start, maxJSONDepth)
		if end < 0 {
			return
		}
		visit(key, start, end)
		i, more = nextMember(object, end, '}')
	}
}

// rewriteMeta copies an ObjectMeta message with another resourceVersion, with
// those of the other fields that keep allows, and with the annotations entry
// (nil: none) at its place in field order.
func rewriteMeta(meta, rv, annotation []byte, keep func(protowire.Number) bool) []byte {
	out := make([]byte, 0, len(meta)+len(rv)+len(annotation)+16)
	put := annotation == nil
	stamped := false
	for len(meta) > 0 {
		num, _, n := protowire.ConsumeField(meta)
		if n < 0 {
			break // cannot be: the message was walked before
		}
		if !stamped && num > numMetaRV {
			out = appendBytesField(out, numMetaRV, rv)
			stamped = true
		}
		if !put && num > numMetaAnnotations {
			out = appendBytesField(out, numMetaAnnotations, annotation)
			put = true
		}
		switch {
		case num == numMetaRV && !stamped:
			out = appendBytesField(out, numMetaRV, rv)
			stamped = true
		case num == numMetaRV:
		case keep(num):
			out = append(out, meta[:n]...)
		}
		meta = meta[n:]
	}
	if !stamped {
		out = appendBytesField(out, numMetaRV, rv)
	}
	if !put {
		out = appendBytesField(out, numMetaAnnotations, annotation)
	}
	return out
}
