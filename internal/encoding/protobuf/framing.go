package protobuf

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
)

var _ encoding.Framing = Codec{}

// Separator implements encoding.Framing.
func (Codec) Separator() string { return "" }

// AppendItemHead implements encoding.Framing.
func (Codec) AppendItemHead(dst []byte, n int) []byte { return appendHead(dst, listItems, n) }

// ItemSize implements encoding.Framing.
func (Codec) ItemSize(n int) int { return fieldSize(listItems, n) }

// List implements encoding.Framing.
func (Codec) List(t encoding.ListType, meta *metav1.ListMeta, _, size int) (head, tail []byte) {
	listMeta, err := meta.Marshal()
	if err != nil {
		panic(err) // strings and a number always marshal
	}
	return appendListHead(nil, t.APIVersion, t.Kind, listMeta, size), tailBytes
}

// tailBytes is a shared Tail.
var tailBytes = []byte(Tail)

// Body implements encoding.Framing.
func (Codec) Body(apiVersion, kind string, n int) (head, tail []byte) {
	return appendBodyHead(nil, apiVersion, kind, n), tailBytes
}

// AppendPartialHead implements encoding.Framing. A PartialObjectMetadata only has metadata.
func (Codec) AppendPartialHead(dst []byte, n int) []byte { return appendHead(dst, objectMetadata, n) }

// PartialTail implements encoding.Framing.
func (Codec) PartialTail() string { return "" }

// PartialSize implements encoding.Framing.
func (Codec) PartialSize(n int) int { return fieldSize(objectMetadata, n) }

// Event implements encoding.Framing.
func (c Codec) Event(p *encoding.Pieces, t api.EventType, apiVersion, kind string, message []byte) {
	c.EventHead(p, t, apiVersion, kind, len(message))
	p.List = append(p.List, message, tailBytes)
}

// EventHead implements encoding.Framing.
func (Codec) EventHead(p *encoding.Pieces, t api.EventType, apiVersion, kind string, n int) {
	p.Make(func(b []byte) []byte { return appendEventHead(b, t, apiVersion, kind, n) })
}

// EventTail implements encoding.Framing.
func (Codec) EventTail() []byte { return tailBytes }

// Around implements encoding.Framing. The head of a message contains its length.
func (Codec) Around() *encoding.Constants { return nil }

// AroundPartial implements encoding.Framing.
func (Codec) AroundPartial() *encoding.Constants { return nil }

// Status implements encoding.Framing.
func (Codec) Status(status *metav1.Status) []byte {
	message, err := status.Marshal()
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return message
}

// StreamType implements encoding.Framing.
func (Codec) StreamType() string { return api.Protobuf.MediaType() + ";stream=watch" }

// Delimiter implements encoding.Framing: four bytes of length precede each event.
func (Codec) Delimiter() int { return 4 }
