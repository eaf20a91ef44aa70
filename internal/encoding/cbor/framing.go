package cbor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
)

// Framing implements encoding.Framing for CBOR. A message is an object's CBOR without
// SelfDescribed. The cache stores nothing in CBOR, so there is no Codec.
type Framing struct{}

var _ encoding.Framing = Framing{}

// Separator implements encoding.Framing.
func (Framing) Separator() string { return "" }

// AppendItemHead implements encoding.Framing.
func (Framing) AppendItemHead(dst []byte, _ int) []byte { return dst }

// ItemSize implements encoding.Framing.
func (Framing) ItemSize(n int) int { return n }

// List implements encoding.Framing.
func (Framing) List(t encoding.ListType, meta *metav1.ListMeta, n, _ int) (head, tail []byte) {
	head = AppendListHead(nil, t.APIVersion, t.Kind, listMeta(t, meta), n)
	if n == 0 && t.Null {
		head[len(head)-1] = majorSimple | simpleNull
	}
	return head, nil
}

// listMeta returns the metadata of a list. An untyped one has continue even if it is empty.
func listMeta(t encoding.ListType, meta *metav1.ListMeta) []byte {
	if !t.Untyped || meta.Continue != "" {
		return marshal(meta)
	}
	item := marshal(meta)
	n, offset := mapHead(item)
	members := append(appendString(nil, "continue"), majorBytes)
	return append(append(appendHead(nil, majorMap, uint64(n+1)), members...), item[offset:]...)
}

// marshal returns the CBOR of strings and numbers, which cannot fail.
func marshal(v any) []byte {
	item, err := direct.Marshal(v)
	if err != nil {
		panic(err)
	}
	return item
}

// selfDescribed is a shared SelfDescribed.
var selfDescribed = []byte(SelfDescribed)

// Body implements encoding.Framing.
func (Framing) Body(string, string, int) (head, tail []byte) { return selfDescribed, nil }

// partialHead precedes the metadata in a PartialObjectMetadata.
var partialHead = func() []byte {
	b := append([]byte(nil), majorMap|3)
	b = appendString(appendString(b, "kind"), encoding.PartialKind)
	b = appendString(appendString(b, "apiVersion"), encoding.PartialAPIVersion)
	return appendString(b, "metadata")
}()

// AppendPartialHead implements encoding.Framing.
func (Framing) AppendPartialHead(dst []byte, _ int) []byte { return append(dst, partialHead...) }

// PartialTail implements encoding.Framing.
func (Framing) PartialTail() string { return "" }

// PartialSize implements encoding.Framing.
func (Framing) PartialSize(n int) int { return len(partialHead) + n }

// event and partialEvent surround an object, and the metadata of a PartialObjectMetadata.
var event, partialEvent = around(nil), around(partialHead)

func around(head []byte) *encoding.Constants {
	c := &encoding.Constants{}
	for t := api.Added; t <= api.Error; t++ {
		c.Heads[t] = append(AppendFrameHead(nil, t.String()), head...)
	}
	return c
}

// Event implements encoding.Framing.
func (Framing) Event(p *encoding.Pieces, t api.EventType, _, _ string, message []byte) {
	event.Append(p, t, message)
}

// EventHead implements encoding.Framing.
func (Framing) EventHead(p *encoding.Pieces, t api.EventType, _, _ string, _ int) {
	p.List = append(p.List, event.Heads[t])
}

// EventTail implements encoding.Framing.
func (Framing) EventTail() []byte { return event.Tail }

// Around implements encoding.Framing. Nothing depends on the length of the message.
func (Framing) Around() *encoding.Constants { return event }

// AroundPartial implements encoding.Framing.
func (Framing) AroundPartial() *encoding.Constants { return partialEvent }

// Status implements encoding.Framing.
func (Framing) Status(status *metav1.Status) []byte { return marshal(status) }

// StreamType implements encoding.Framing. It is the type of a sequence of items.
func (Framing) StreamType() string { return "application/cbor-seq" }

// Delimiter implements encoding.Framing. Items are self-delimiting.
func (Framing) Delimiter() int { return 0 }
