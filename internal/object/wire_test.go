package object_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// codecs are the serializers that kube-apiserver uses.
type codecs struct {
	factory serializer.CodecFactory
	t       testing.TB
}

func newCodecs(t testing.TB) codecs {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return codecs{serializer.NewCodecFactory(scheme), t}
}

func (c codecs) info(enc api.Encoding) runtime.SerializerInfo {
	info, ok := runtime.SerializerInfoForMediaType(c.factory.SupportedMediaTypes(), enc.MediaType())
	if !ok {
		c.t.Fatalf("no serializer for %s", enc)
	}
	return info
}

func (c codecs) encode(enc api.Encoding, obj runtime.Object) []byte {
	var buf bytes.Buffer
	if err := c.info(enc).Serializer.Encode(obj, &buf); err != nil {
		c.t.Fatal(err)
	}
	return buf.Bytes()
}

// frame is what the watch handler of kube-apiserver writes.
func (c codecs) frame(enc api.Encoding, eventType string, obj runtime.Object) []byte {
	var buf bytes.Buffer
	stream := c.info(enc).StreamSerializer
	encoder := streaming.NewEncoder(stream.NewFrameWriter(&buf), stream.Serializer)
	event := &metav1.WatchEvent{Type: eventType, Object: runtime.RawExtension{Raw: c.encode(enc, obj)}}
	if err := encoder.Encode(event); err != nil {
		c.t.Fatal(err)
	}
	return buf.Bytes()
}

// TestObjectsAndFrames compares every wire form of a pod with apimachinery's.
func TestObjectsAndFrames(t *testing.T) {
	c := newCodecs(t)
	pod := samplePod(1)
	partial := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: object.PartialKind, APIVersion: object.PartialAPIVersion},
		ObjectMeta: pod.ObjectMeta,
	}
	s := object.SchemaFor(podResource)
	j := decode(t, s, api.JSON, rawOf(t, api.JSON, pod))
	p := decode(t, s, api.Protobuf, rawOf(t, api.Protobuf, pod))

	same(t, "JSON object", append(bytes.Clone(j.Raw), '\n'), c.encode(api.JSON, pod))
	same(t, "protobuf object", protobufBody("v1", "Pod", p.Raw), c.encode(api.Protobuf, pod))
	same(t, "JSON partial", append(object.AppendPartialJSON(nil, j.Metadata()), '\n'), c.encode(api.JSON, partial))
	partialRaw := object.AppendPartialProtobuf(nil, p.Metadata())
	same(t, "protobuf partial",
		protobufBody(object.PartialAPIVersion, object.PartialKind, partialRaw), c.encode(api.Protobuf, partial))

	for _, typ := range []api.EventType{api.Added, api.Modified, api.Deleted, api.Bookmark} {
		same(t, "JSON frame", object.AppendJSONFrame(nil, typ, j.Raw), c.frame(api.JSON, typ.String(), pod))
		frame := object.AppendProtobufFrame(nil, typ, "v1", "Pod", p.Raw)
		same(t, "protobuf frame", frame, c.frame(api.Protobuf, typ.String(), pod))
		var event metav1.WatchEvent
		if err := event.Unmarshal(frame[4:]); err != nil {
			t.Fatal(err)
		}
		apiVersion, kind, raw, err := object.ParseProtobufObject(event.Object.Raw)
		if err != nil || apiVersion != "v1" || kind != "Pod" {
			t.Fatalf("parse object: %q %q %v", apiVersion, kind, err)
		}
		same(t, "raw", raw, p.Raw)
	}
}

// protobufBody is a response body as it is served, in three parts.
func protobufBody(apiVersion, kind string, raw []byte) []byte {
	body := append(object.AppendProtobufObjectHead(nil, apiVersion, kind, len(raw)), raw...)
	return append(body, object.ProtobufTail...)
}

// TestLists builds whole lists of the pieces.
func TestLists(t *testing.T) {
	c := newCodecs(t)
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	list.ResourceVersion = "123"
	s := object.SchemaFor(podResource)
	var jsonItems, protoItems []byte
	size := 0
	for i := range 3 {
		pod := samplePod(i)
		j := decode(t, s, api.JSON, rawOf(t, api.JSON, pod))
		p := decode(t, s, api.Protobuf, rawOf(t, api.Protobuf, pod))
		if i > 0 {
			jsonItems = append(jsonItems, ',')
		}
		jsonItems = object.AppendJSONListItem(jsonItems, j)
		protoItems = object.AppendProtobufListItem(protoItems, p.Raw)
		size += object.ProtobufListItemSize(len(p.Raw))
		pod.TypeMeta = metav1.TypeMeta{} // as the registry hands items out
		list.Items = append(list.Items, *pod)
	}
	want := c.encode(api.JSON, list)
	got := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"123"},"items":[` + string(jsonItems) + "]}\n"
	same(t, "JSON list", []byte(got), want)

	meta, err := list.ListMeta.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	body := object.AppendProtobufListHead(nil, "v1", "PodList", meta, size)
	body = append(append(body, protoItems...), object.ProtobufTail...)
	same(t, "protobuf list", body, c.encode(api.Protobuf, list))
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestParseProtobufErrors(t *testing.T) {
	for name, body := range map[string]string{
		"no magic":       "\x0a\x00",
		"truncated":      "k8s\x00\x0a\x09\x0a",
		"inner encoding": "k8s\x00\x12\x00\x1a\x04gzip",
	} {
		if _, _, _, err := object.ParseProtobufObject([]byte(body)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestAtRV changes the version in the bytes, also where its length changes that
// of the metadata, and of the metadata's own length.
func TestAtRV(t *testing.T) {
	s := object.SchemaFor(podResource)
	for _, enc := range encodings {
		for _, padding := range []int{0, 40, 60, 80} {
			for _, rv := range []string{"1", "99999", "18446744073709551615"} {
				pod := samplePod(4)
				if padding > 0 { // metadata of about 128 bytes, where its length grows a byte
					pod.ObjectMeta = metav1.ObjectMeta{Name: strings.Repeat("n", padding), Namespace: "ns", UID: "u", ResourceVersion: "12345"}
				}
				o := decode(t, s, enc, rawOf(t, enc, pod))
				before := bytes.Clone(o.Raw)
				pod.ResourceVersion = rv
				want := decode(t, s, enc, rawOf(t, enc, pod))
				got, err := o.AtRV(enc, want.RV)
				if err != nil {
					t.Fatal(err)
				}
				same(t, enc.String(), got.Raw, want.Raw)
				same(t, enc.String()+" metadata", got.Metadata(), want.Metadata())
				same(t, "original", o.Raw, before)
				if got.RV != want.RV || got.ID == o.ID || got.Key != o.Key {
					t.Errorf("got %+v", got)
				}
				same(t, "list item", object.AppendJSONListItem(nil, got), object.AppendJSONListItem(nil, want))
			}
		}
		o := decode(t, s, enc, rawOf(t, enc, samplePod(4)))
		if got, err := o.AtRV(enc, o.RV); err != nil || got != o {
			t.Errorf("AtRV of its own version: %v, %v", got, err)
		}
	}
}

// bookmarks are what kube-apiserver v1.36.3 sent.
const (
	podBookmark = `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"215","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}`
	// An older release writes the empty creationTimestamp.
	oldBookmark    = `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12746","creationTimestamp":null},"spec":{"containers":null},"status":{}}`
	customBookmark = `{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"219"}}`
	// The whole frame of the pods' protobuf bookmark.
	podBookmarkFrame = "000000900a08424f4f4b4d41524b1283010a80016b3873000a090a0276311203506f64126b0a360a0012001a0022002a003203323138380042006221" +
		"0a196b38732e696f2f696e697469616c2d6576656e74732d656e6412047472756512" +
		"1c1a003200420" + "04a005200580060006800820100" + "8a01009a0100c201001a130a001a0022002a0032004a005a00720088010" + "01a002200"
)

func TestJSONBookmarks(t *testing.T) {
	for _, c := range []struct {
		name, learned, rv string
		end               bool
		plain, marked     string // at version 7
	}{
		{"typed, marked", podBookmark, "215", true,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7"},"spec":{"containers":null},"status":{}}`,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}`},
		{"typed, plain", oldBookmark, "12746", false,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","creationTimestamp":null},"spec":{"containers":null},"status":{}}`,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","creationTimestamp":null,"annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}`},
		{"custom, marked", customBookmark, "219", true,
			`{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"resourceVersion":"7"}}`,
			`{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"7"}}`},
		{"custom, plain", `{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"resourceVersion":"3"}}`, "3", false,
			`{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"resourceVersion":"7"}}`,
			`{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"7"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tmpl, rv, end, err := object.ParseBookmark(api.JSON, []byte(c.learned))
			if err != nil || end != c.end || rv != mustRV(c.rv) {
				t.Fatalf("parsed %d %v %v", rv, end, err)
			}
			same(t, "same again", tmpl.AppendObject(nil, rv, end), []byte(c.learned))
			same(t, "plain", tmpl.AppendObject(nil, 7, false), []byte(c.plain))
			same(t, "marked", tmpl.AppendObject([]byte("x"), 7, true), []byte("x"+c.marked))
		})
	}
	plain := object.NewBookmarkTemplate(api.JSON, "v1", "Pod", false)
	same(t, "fallback", plain.AppendObject(nil, 9, false), []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9"}}`))
	custom := object.NewBookmarkTemplate(api.JSON, "ex.com/v1", "Widget", true)
	same(t, "custom fallback", custom.AppendObject(nil, 219, true), []byte(customBookmark))
	same(t, "partial", object.AppendPartialJSON(nil, custom.AppendMetadata(nil, 1, false)),
		[]byte(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"}}`))
}

func mustRV(s string) uint64 {
	rv, err := api.ParseResourceVersion(s)
	if err != nil {
		panic(err)
	}
	return rv
}

func TestProtobufBookmarks(t *testing.T) {
	frame, err := hex.DecodeString(podBookmarkFrame)
	if err != nil {
		t.Fatal(err)
	}
	var event metav1.WatchEvent
	if err := event.Unmarshal(frame[4:]); err != nil {
		t.Fatal(err)
	}
	_, _, raw, err := object.ParseProtobufObject(event.Object.Raw)
	if err != nil {
		t.Fatal(err)
	}
	tmpl, rv, end, err := object.ParseBookmark(api.Protobuf, raw)
	if err != nil || rv != 218 || !end {
		t.Fatalf("parsed %d %v %v", rv, end, err)
	}
	same(t, "same frame again", object.AppendProtobufFrame(nil, api.Bookmark, "v1", "Pod", tmpl.AppendObject(nil, 218, true)), frame)

	empty := &corev1.Pod{}
	for _, rv := range []string{"5", "18446744073709551615"} {
		empty.ResourceVersion, empty.Annotations = rv, nil
		plain := rawOf(t, api.Protobuf, empty)
		same(t, "plain", tmpl.AppendObject(nil, mustRV(rv), false), plain)
		empty.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		marked := rawOf(t, api.Protobuf, empty)
		same(t, "marked", tmpl.AppendObject(nil, mustRV(rv), true), marked)

		fromPlain, _, end, err := object.ParseBookmark(api.Protobuf, plain)
		if err != nil || end {
			t.Fatal(end, err)
		}
		same(t, "learned from plain", fromPlain.AppendObject(nil, mustRV(rv), true), marked)
	}
	fallback := object.NewBookmarkTemplate(api.Protobuf, "v1", "Pod", false)
	var pod corev1.Pod
	if err := pod.Unmarshal(fallback.AppendObject(nil, 12, true)); err != nil {
		t.Fatal(err)
	}
	if pod.ResourceVersion != "12" || pod.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("fallback reads %+v", pod.ObjectMeta)
	}
}

func TestBookmarkErrors(t *testing.T) {
	for _, raw := range []string{
		``, `[]`, `{}`, `{"metadata":[]}`, `{"metadata":{}}`, `{"metadata":{"resourceVersion":5}}`, `{"metadata":{"resourceVersion":"x"}}`,
		`{"metadata":{"resourceVersion":"5","name":"n"}}`, `{"metadata":{"resourceVersion":"5"}`, `{"metadata":{"resourceVersion":"5"}}x`,
	} {
		if _, _, _, err := object.ParseBookmark(api.JSON, []byte(raw)); err == nil {
			t.Errorf("%s accepted", raw)
		}
	}
	pod := rawOf(t, api.Protobuf, samplePod(1))
	for name, raw := range map[string][]byte{
		"empty": nil, "named": pod, "truncated": {0x0a, 9, 0x32}, "no version": {0x0a, 0},
		"two metadata": {0x0a, 3, 0x32, 1, '5', 0x0a, 3, 0x32, 1, '5'},
	} {
		if _, _, _, err := object.ParseBookmark(api.Protobuf, raw); err == nil {
			t.Errorf("%s accepted", name)
		}
	}
}
