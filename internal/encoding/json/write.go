package json

import (
	"encoding/json"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
)

var _ encoding.Framing = Codec{}

// itemHead returns what precedes the members of a typed object in a watch. Items of lists do not
// have it.
func itemHead(apiVersion, kind string) []byte {
	return []byte(`{"kind":` + quote(kind) + `,"apiVersion":` + quote(apiVersion) + `,`)
}

// Item returns an object as an item of a list, in two parts: objects of built-in types without kind
// and apiVersion. listOffset is from Scan: 0 if the item is the whole object (custom resources),
// otherwise the position in raw after itemHead.
func Item(raw []byte, listOffset int) (open string, rest []byte) {
	if listOffset == 0 {
		return "", raw
	}
	return "{", raw[listOffset:]
}

// Separator implements encoding.Framing.
func (Codec) Separator() string { return "," }

// AppendItemHead implements encoding.Framing.
func (Codec) AppendItemHead(dst []byte, _ int) []byte { return dst }

// ItemSize implements encoding.Framing.
func (Codec) ItemSize(n int) int { return n }

// List implements encoding.Framing.
func (Codec) List(t encoding.ListType, meta *metav1.ListMeta, n, _ int) (head, tail []byte) {
	if t.Untyped {
		return untypedList(t, meta)
	}
	head = append(itemHead(t.APIVersion, t.Kind), `"metadata":`...)
	head = AppendListMeta(head, meta)
	if n == 0 && t.Null {
		return append(head, `,"items":null`...), []byte("}\n")
	}
	return append(head, `,"items":[`...), []byte("]}\n")
}

// untypedList returns the frame of a list that is untyped upstream: sorted keys, and continue even
// if it is empty.
func untypedList(t encoding.ListType, meta *metav1.ListMeta) (head, tail []byte) {
	head = append(head, `{"apiVersion":`+quote(t.APIVersion)+`,"items":[`...)
	tail = append(tail, `],"kind":`+quote(t.Kind)+`,"metadata":{"continue":`+quote(meta.Continue)...)
	if meta.RemainingItemCount != nil {
		tail = append(tail, `,"remainingItemCount":`...)
		tail = strconv.AppendInt(tail, *meta.RemainingItemCount, 10)
	}
	return head, append(tail, `,"resourceVersion":`+quote(meta.ResourceVersion)+"}}\n"...)
}

// AppendListMeta appends a ListMeta like encoding/json, except for selfLink, which no server sets
// any more.
func AppendListMeta(dst []byte, meta *metav1.ListMeta) []byte {
	dst = append(dst, '{')
	start := len(dst)
	member := func(name string) {
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(dst, name...)
	}
	if meta.ResourceVersion != "" {
		member(`"resourceVersion":`)
		dst = appendQuoted(dst, meta.ResourceVersion)
	}
	if meta.Continue != "" {
		member(`"continue":`)
		dst = appendQuoted(dst, meta.Continue)
	}
	if meta.RemainingItemCount != nil {
		member(`"remainingItemCount":`)
		dst = strconv.AppendInt(dst, *meta.RemainingItemCount, 10)
	}
	if meta.ShardInfo != nil {
		member(`"shardInfo":{"selector":`)
		dst = append(appendQuoted(dst, meta.ShardInfo.Selector), '}')
	}
	return append(dst, '}')
}

// Body implements encoding.Framing.
func (Codec) Body(string, string, int) (head, tail []byte) { return nil, []byte("\n") }

// PartialHead and PartialTail surround metadata in a PartialObjectMetadata.
const (
	PartialHead = `{"kind":"` + encoding.PartialKind + `","apiVersion":"` + encoding.PartialAPIVersion + `","metadata":`
	PartialTail = "}"
)

// AppendPartialHead implements encoding.Framing.
func (Codec) AppendPartialHead(dst []byte, _ int) []byte { return append(dst, PartialHead...) }

// PartialTail implements encoding.Framing.
func (Codec) PartialTail() string { return PartialTail }

// PartialSize implements encoding.Framing.
func (Codec) PartialSize(n int) int { return len(PartialHead) + n + len(PartialTail) }

// event and partialEvent surround the object of an event, and the metadata of a
// PartialObjectMetadata.
var (
	event        = constants("", "")
	partialEvent = constants(PartialHead, PartialTail)
)

func constants(before, after string) *encoding.Constants {
	c := &encoding.Constants{Tail: []byte(after + "}\n")}
	for t := api.Added; t <= api.Error; t++ {
		c.Heads[t] = []byte(`{"type":"` + t.String() + `","object":` + before)
	}
	return c
}

// Around implements encoding.Framing. Nothing depends on the length of the message.
func (Codec) Around() *encoding.Constants { return event }

// AroundPartial implements encoding.Framing.
func (Codec) AroundPartial() *encoding.Constants { return partialEvent }

// Event implements encoding.Framing.
func (Codec) Event(p *encoding.Pieces, t api.EventType, _, _ string, message []byte) {
	event.Append(p, t, message)
}

// EventHead implements encoding.Framing.
func (Codec) EventHead(p *encoding.Pieces, t api.EventType, _, _ string, _ int) {
	p.List = append(p.List, event.Heads[t])
}

// EventTail implements encoding.Framing.
func (Codec) EventTail() []byte { return event.Tail }

// Status implements encoding.Framing.
func (Codec) Status(status *metav1.Status) []byte {
	message, err := json.Marshal(status)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return message
}

// StreamType implements encoding.Framing.
func (Codec) StreamType() string { return api.JSON.MediaType() }

// Delimiter implements encoding.Framing.
func (Codec) Delimiter() int { return 0 }
