package form

import (
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// protobufEncoding is api.Protobuf. Whatever stands around a message begins with its
// length.
type protobufEncoding struct{}

// Field numbers of all list types of the Kubernetes API and of
// metav1.PartialObjectMetadata.
const (
	protobufListItems       = 2
	protobufPartialMetadata = 1
)

// protobufHead is the longest tag and length before a message.
const protobufHead = 12

var protobufTail = []byte(object.ProtobufTail)

func (protobufEncoding) separator() string { return "" }

func (protobufEncoding) itemHead(w *chunks, n int) {
	w.append(protobufHead, func(b []byte) []byte {
		b = protowire.AppendTag(b, protobufListItems, protowire.BytesType)
		return protowire.AppendVarint(b, uint64(n))
	})
}

func (protobufEncoding) itemSize(n int) int { return object.ProtobufListItemSize(n) }

func (protobufEncoding) listFrame(t listType, meta *metav1.ListMeta, _, size int) (head, tail []byte) {
	listMeta, err := meta.Marshal()
	if err != nil {
		panic(err) // three strings and a number always marshal
	}
	return object.AppendProtobufListHead(nil, t.apiVersion, t.kind, listMeta, size), protobufTail
}

func (protobufEncoding) objectFrame(apiVersion, kind string, n int) (head, tail []byte) {
	return object.AppendProtobufObjectHead(nil, apiVersion, kind, n), protobufTail
}

func (protobufEncoding) partialHead(b []byte, n int) []byte {
	b = protowire.AppendTag(b, protobufPartialMetadata, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(n))
}

func (protobufEncoding) partialTail() string { return "" }

func (protobufEncoding) partialSize(n int) int {
	return protowire.SizeTag(protobufPartialMetadata) + protowire.SizeBytes(n)
}

func (protobufEncoding) event(f *Frames, t api.EventType, apiVersion, kind string, message []byte) {
	f.grow(func(b []byte) []byte { return object.AppendProtobufFrameHead(b, t, apiVersion, kind, len(message)) })
	f.list = append(f.list, message, protobufTail)
}

func (e protobufEncoding) partialEvent(f *Frames, t api.EventType, metadata []byte) {
	f.grow(func(b []byte) []byte {
		n := len(metadata)
		b = object.AppendProtobufFrameHead(b, t, object.PartialAPIVersion, object.PartialKind, e.partialSize(n))
		return e.partialHead(b, n)
	})
	f.list = append(f.list, metadata, protobufTail)
}

func (e protobufEncoding) errorEvent(f *Frames, status *metav1.Status) {
	apiVersion, kind, raw, err := object.ParseProtobufObject(api.EncodeStatus(status, api.StatusProtobuf))
	if err == nil { // it was made a line above
		e.event(f, api.Error, apiVersion, kind, raw)
	}
}

func (protobufEncoding) around() *constants { return nil }

func (protobufEncoding) aroundPartial() *constants { return nil }

func (protobufEncoding) streamType() string { return api.Protobuf.MediaType() + ";stream=watch" }

// delimiter: four bytes of length precede each event.
func (protobufEncoding) delimiter() int { return 4 }
