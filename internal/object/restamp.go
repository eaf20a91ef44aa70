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
	c := *o
	c.RV = rv
	c.ID = lastID.Add(1)
	text := strconv.AppendUint(make([]byte, 0, 20), rv, 10)
	var meta []byte
	switch enc {
	case api.JSON:
		start, end := jsonMember(o.Metadata(), "resourceVersion")
		if start < 0 {
			return nil, fmt.Errorf("restamp %s: %w", o.Key, errNoRVPlace)
		}
		old := o.Metadata()
		meta = append(meta, old[:start+1]...)
		meta = append(append(meta, text...), '"')
		meta = append(meta, old[end:]...)
		c.Raw = append(append(append(make([]byte, 0, len(o.Raw)+20), o.Raw[:o.MetaStart]...), meta...), o.Raw[o.MetaEnd:]...)
		c.MetaEnd = c.MetaStart + len(meta)
	default:
		meta = rewriteMeta(o.Metadata(), text, nil, func(n protowire.Number) bool { return true })
		// The length of the metadata precedes it and may change its own size.
		head := o.MetaStart - protowire.SizeVarint(uint64(len(o.Metadata())))
		c.Raw = append(make([]byte, 0, len(o.Raw)+24), o.Raw[:head]...)
		c.Raw = protowire.AppendBytes(c.Raw, meta)
		c.MetaEnd = len(c.Raw)
		c.MetaStart = c.MetaEnd - len(meta)
		c.Raw = append(c.Raw, o.Raw[o.MetaEnd:]...)
	}
	return &c, nil
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
