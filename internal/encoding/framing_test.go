package encoding_test

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
	"github.com/kubeweir/kubeweir/internal/encoding/json"
	"github.com/kubeweir/kubeweir/internal/encoding/protobuf"
)

// framings are used by every test of this file.
var framings = map[api.Encoding]encoding.Framing{api.JSON: json.Codec{}, api.Protobuf: protobuf.Codec{}}

func eachFraming(t *testing.T, test func(t *testing.T, enc api.Encoding, f encoding.Framing)) {
	for enc, f := range framings {
		t.Run(enc.String(), func(t *testing.T) { test(t, enc, f) })
	}
}

func concat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func partialOf(pod *corev1.Pod) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: encoding.PartialKind, APIVersion: encoding.PartialAPIVersion},
		ObjectMeta: pod.ObjectMeta,
	}
}

// partial returns the message of a PartialObjectMetadata.
func partial(t *testing.T, f encoding.Framing, metadata []byte) []byte {
	message := concat(f.AppendPartialHead(nil, len(metadata)), metadata, []byte(f.PartialTail()))
	if f.PartialSize(len(metadata)) != len(message) || len(message) > len(metadata)+encoding.MaxHead {
		t.Errorf("size %d of %d bytes around %d", f.PartialSize(len(metadata)), len(message), len(metadata))
	}
	return message
}

// TestBody compares bodies of one object with those of the libraries.
func TestBody(t *testing.T) {
	pod := encodingtest.Pod(1)
	eachFraming(t, func(t *testing.T, enc api.Encoding, f encoding.Framing) {
		message := encodingtest.Raw(t, enc, pod)
		head, tail := f.Body("v1", "Pod", len(message))
		encodingtest.Same(t, "object", concat(head, message, tail), encodingtest.Body(t, enc, pod))

		message = partial(t, f, encodingtest.Raw(t, enc, &pod.ObjectMeta))
		head, tail = f.Body(encoding.PartialAPIVersion, encoding.PartialKind, len(message))
		encodingtest.Same(t, "partial", concat(head, message, tail), encodingtest.Body(t, enc, partialOf(pod)))

		message = f.Status(status())
		head, tail = f.Body("v1", "Status", len(message))
		encodingtest.Same(t, "status", concat(head, message, tail), encodingtest.Body(t, enc, status()))
	})
}

// TestEventFrames compares events with those of the libraries.
func TestEventFrames(t *testing.T) {
	pod := encodingtest.Pod(1)
	eachFraming(t, func(t *testing.T, enc api.Encoding, f encoding.Framing) {
		message, metadata := encodingtest.Raw(t, enc, pod), encodingtest.Raw(t, enc, &pod.ObjectMeta)
		var all encoding.Pieces
		var want []byte
		for _, typ := range []api.EventType{api.Added, api.Modified, api.Deleted, api.Bookmark} {
			f.Event(&all, typ, "v1", "Pod", message)
			encoding.AppendPartialEvent(f, &all, typ, metadata, nil)
			want = append(want, encodingtest.Frame(t, enc, typ.String(), pod)...)
			want = append(want, encodingtest.Frame(t, enc, typ.String(), partialOf(pod))...)
		}
		f.Event(&all, api.Error, "v1", "Status", f.Status(status()))
		want = append(want, encodingtest.Frame(t, enc, "ERROR", status())...)
		encodingtest.Same(t, "events", concat(all.List...), want)
		if constant := len(all.Buf) == 0; (f.Around() != nil) != constant || (f.AroundPartial() != nil) != constant {
			t.Errorf("constants: %v and %v, with %d bytes made", f.Around(), f.AroundPartial(), len(all.Buf))
		}
		if &all.List[1][0] != &message[0] {
			t.Error("the message was copied")
		}
	})
}

// listMetas returns different metadata of lists.
func listMetas() []metav1.ListMeta {
	remaining := int64(12)
	return []metav1.ListMeta{
		{ResourceVersion: "123"},
		{ResourceVersion: "123", Continue: "abc"},
		{ResourceVersion: "123", Continue: "abc", RemainingItemCount: &remaining},
		{ResourceVersion: "123", ShardInfo: &metav1.ShardInfo{Selector: `shardRange(object.metadata.uid, '0x0', "<1")`}},
	}
}

// TestList compares lists with those of the libraries.
func TestList(t *testing.T) {
	eachFraming(t, func(t *testing.T, enc api.Encoding, f encoding.Framing) {
		for _, meta := range listMetas() {
			for n := range 3 {
				pods := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: meta, Items: []corev1.Pod{}}
				partials := &metav1.PartialObjectMetadataList{ListMeta: meta}
				partials.APIVersion, partials.Kind = encoding.PartialAPIVersion, encoding.PartialListKind
				var full, reduced [][]byte
				for i := range n {
					pod := encodingtest.Pod(i)
					partials.Items = append(partials.Items, *partialOf(pod))
					reduced = append(reduced, partial(t, f, encodingtest.Raw(t, enc, &pod.ObjectMeta)))
					full = append(full, item(t, codecs[enc], encodingtest.Raw(t, enc, pod)))
					pod.TypeMeta = metav1.TypeMeta{} // as the registry returns items
					pods.Items = append(pods.Items, *pod)
				}
				typ := encoding.ListType{APIVersion: "v1", Kind: "PodList"}
				encodingtest.Same(t, "list", listOf(t, f, typ, &meta, full), encodingtest.Body(t, enc, pods))
				typ = encoding.ListType{APIVersion: encoding.PartialAPIVersion, Kind: encoding.PartialListKind, Null: true}
				encodingtest.Same(t, "partial list", listOf(t, f, typ, &meta, reduced), encodingtest.Body(t, enc, partials))
			}
		}
	})
}

// item returns the message of an object as an item of a list.
func item(t *testing.T, codec encoding.Codec, raw []byte) []byte {
	t.Helper()
	s := encoding.Scan{Encoded: encoding.Encoded{Raw: raw}}
	if err := codec.Scan(&s); err != nil {
		t.Fatal(err)
	}
	open, rest := json.Item(s.Raw, s.ListOffset)
	return append([]byte(open), rest...)
}

// listOf returns the body of a list of messages.
func listOf(t *testing.T, f encoding.Framing, typ encoding.ListType, meta *metav1.ListMeta, messages [][]byte) []byte {
	t.Helper()
	var items []byte
	size := 0
	for i, m := range messages {
		if i > 0 {
			items = append(items, f.Separator()...)
		}
		start := len(items)
		items = append(f.AppendItemHead(items, len(m)), m...)
		if f.ItemSize(len(m)) != len(items)-start {
			t.Errorf("item of %d bytes, want %d", len(items)-start, f.ItemSize(len(m)))
		}
		size += f.ItemSize(len(m))
	}
	head, tail := f.List(typ, meta, len(messages), size)
	return concat(head, items, tail)
}
