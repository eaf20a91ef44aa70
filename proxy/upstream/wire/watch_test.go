package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeweir/kubeweir/internal/api"
)

func jsonEvent(t testing.TB, typ string, object any) []byte {
	return append([]byte(`{"type":"`+typ+`","object":`+string(encodeJSON(t, object))+`}`), '\n')
}

func protobufEvent(t testing.TB, typ string, object runtime.Object) []byte {
	event := metav1.WatchEvent{Type: typ, Object: runtime.RawExtension{Raw: encodeProtobuf(t, object)}}
	b, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func testPod(rv string) *corev1.Pod {
	pod := podList(1, 300).Items[0]
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	pod.ResourceVersion = rv
	return &pod
}

func testBookmark(rv string, end bool) *corev1.Pod {
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv}}
	if end {
		pod.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return pod
}

func testStatus() *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   "Failure", Message: "too old resource version: 1 (2)", Reason: metav1.StatusReasonExpired, Code: 410,
	}
}

func TestEvents(t *testing.T) {
	var jsonBody, protoBody []byte
	objects := []struct {
		typ    string
		object interface {
			runtime.Object
			Marshal() ([]byte, error)
		}
	}{
		{"ADDED", testPod("1")}, {"MODIFIED", testPod("2")}, {"BOOKMARK", testBookmark("3", true)},
		{"DELETED", testPod("4")}, {"BOOKMARK", testBookmark("5", false)}, {"ERROR", testStatus()},
	}
	for _, o := range objects {
		jsonBody = append(jsonBody, jsonEvent(t, o.typ, o.object)...)
		protoBody = append(protoBody, protobufEvent(t, o.typ, o.object)...)
	}
	check := func(t *testing.T, events Events, want func(i int) []byte) {
		for i, o := range objects {
			e, err := events.Next()
			if err != nil {
				t.Fatalf("event %d: %v", i, err)
			}
			if e.Type.String() != o.typ || !bytes.Equal(e.Object, want(i)) {
				t.Errorf("event %d is %s %s", i, e.Type, e.Object)
			}
		}
		if _, err := events.Next(); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
	}
	for name, r := range readers(jsonBody) {
		t.Run("json/"+name, func(t *testing.T) {
			check(t, NewJSONEvents(r, testLimit), func(i int) []byte { return encodeJSON(t, objects[i].object) })
		})
	}
	for name, r := range readers(protoBody) {
		t.Run("protobuf/"+name, func(t *testing.T) {
			check(t, NewProtobufEvents(r, testLimit), func(i int) []byte {
				b, err := objects[i].object.Marshal()
				if err != nil {
					t.Fatal(err)
				}
				return b
			})
		})
	}
	t.Run("truncated", func(t *testing.T) {
		one := jsonEvent(t, "ADDED", testPod("1"))
		for i := 1; i < len(one)-1; i++ {
			if _, err := NewJSONEvents(bytes.NewReader(one[:i]), testLimit).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("JSON cut at %d: %v", i, err)
			}
		}
		one = protobufEvent(t, "ADDED", testPod("1"))
		for i := 1; i < len(one); i++ {
			if _, err := NewProtobufEvents(bytes.NewReader(one[:i]), testLimit).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("protobuf cut at %d: %v", i, err)
			}
		}
	})
}

func TestEventsRefuse(t *testing.T) {
	for body, want := range map[string]string{
		`{"type":"NEW","object":{}}`:        "unknown type",
		`{"type":"ADDED"}`:                  "lacks",
		`{"object":{}}`:                     "lacks",
		`{"type":"ADDED","object":"x"}`:     "an object that is an object",
		`[]`:                                "want a watch event",
		`{"type":"ADDED","object":{"a":]}}`: "malformed JSON",
		`{"type":"ADDED","object":{"a":"` + big(2000) + `"}}`:  "larger than the limit of 1000 bytes",
		`{"type":"ADDED","object":{"a":[` + big(2000) + `1]}}`: "larger than the limit of 1000 bytes",
	} {
		_, err := NewJSONEvents(strings.NewReader(body), 1000).Next()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: error %v, want one about %q", body, err, want)
		}
	}
	for name, tt := range map[string]struct {
		body []byte
		want string
	}{
		"too large":    {binary.BigEndian.AppendUint32(nil, 1<<31), "larger than the limit"},
		"no envelope":  {frame(t, &metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: []byte("{}")}}), "magic"},
		"no object":    {frame(t, &metav1.WatchEvent{Type: "ADDED"}), "lacks"},
		"unknown type": {frame(t, &metav1.WatchEvent{Type: "NEW"}), "unknown type"},
		"garbage":      {[]byte{0, 0, 0, 2, 0xff, 0xff}, "malformed protobuf"},
	} {
		_, err := NewProtobufEvents(bytes.NewReader(tt.body), 1000).Next()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one about %q", name, err, tt.want)
		}
	}
}

func big(n int) string { return strings.Repeat("1,", n/2) }

func frame(t *testing.T, event *metav1.WatchEvent) []byte {
	b, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// TestLargeEventsDoNotKeepMemory checks that a quiet watch after a large event
// holds a small buffer.
func TestLargeEventsDoNotKeepMemory(t *testing.T) {
	large, small := testPod("1"), testBookmark("2", false)
	large.Annotations["x"] = strings.Repeat("y", 4*keepBuffer)
	jsonWatch := NewJSONEvents(bytes.NewReader(append(jsonEvent(t, "ADDED", large), jsonEvent(t, "BOOKMARK", small)...)), 64*keepBuffer)
	protoWatch := NewProtobufEvents(bytes.NewReader(append(protobufEvent(t, "ADDED", large), protobufEvent(t, "BOOKMARK", small)...)), 64*keepBuffer)
	for _, w := range []Events{jsonWatch, protoWatch} {
		for range 2 {
			if _, err := w.Next(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(jsonWatch.buf) > keepBuffer || len(protoWatch.buf) > keepBuffer {
		t.Errorf("buffers of %d and %d bytes are kept", len(jsonWatch.buf), len(protoWatch.buf))
	}
}

func TestParseBookmark(t *testing.T) {
	for _, end := range []bool{true, false} {
		bookmark := testBookmark("42", end)
		message, err := bookmark.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		for enc, object := range map[api.Encoding][]byte{api.JSON: encodeJSON(t, bookmark), api.Protobuf: message} {
			got, err := ParseBookmark(enc, object)
			if want := (BookmarkMeta{42, end}); err != nil || got != want {
				t.Errorf("%s: %+v, %v; want %+v", enc, got, err, want)
			}
		}
	}
	for _, object := range []string{`{}`, `{"metadata":{"resourceVersion":"0"}}`, `{"metadata":{"resourceVersion":"x"}}`, `x`} {
		if _, err := ParseBookmark(api.JSON, []byte(object)); err == nil {
			t.Errorf("%s passes for a bookmark", object)
		}
	}
}

func TestParseStatus(t *testing.T) {
	want := testStatus()
	message, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	fromJSON, err := ParseStatus(api.JSON, encodeJSON(t, want))
	if err != nil {
		t.Fatal(err)
	}
	fromProtobuf, err := ParseStatus(api.Protobuf, message)
	if err != nil {
		t.Fatal(err)
	}
	fromEnvelope, err := ParseEnvelopedStatus(encodeProtobuf(t, want))
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []*metav1.Status{fromJSON, fromProtobuf, fromEnvelope} {
		if got.Code != 410 || got.Reason != metav1.StatusReasonExpired || got.Message != want.Message {
			t.Error(cmp.Diff(want, got))
		}
	}
	if _, err := ParseEnvelopedStatus(encodeProtobuf(t, testPod("1"))); err == nil {
		t.Error("a pod passes for a status")
	}
}

func FuzzJSONEvents(f *testing.F) {
	f.Add(append(jsonEvent(f, "ADDED", testPod("1")), jsonEvent(f, "BOOKMARK", testBookmark("2", true))...), uint8(7))
	f.Add([]byte(`{"object":{"a":"\\"},"type":"DELETED"}`), uint8(1))
	f.Fuzz(func(t *testing.T, body []byte, portion uint8) {
		events := NewJSONEvents(&portions{body, int(portion) + 1}, 4096)
		decoder := json.NewDecoder(bytes.NewReader(body))
		for {
			e, err := events.Next()
			if err != nil {
				return
			}
			var want struct {
				Type   string          `json:"type"`
				Object json.RawMessage `json:"object"`
			}
			if err := decoder.Decode(&want); err != nil {
				return
			}
			// encoding/json folds the case of keys and lets the last one win.
			if want.Type == e.Type.String() && !bytes.Equal(want.Object, e.Object) && bytes.Count(bytes.ToLower(body), []byte("object")) == 1 {
				t.Fatalf("object %q, want %q", e.Object, want.Object)
			}
		}
	})
}

func FuzzProtobufEvents(f *testing.F) {
	f.Add(append(protobufEvent(f, "ADDED", testPod("1")), protobufEvent(f, "ERROR", testStatus())...), uint8(7))
	f.Fuzz(func(t *testing.T, body []byte, portion uint8) {
		events := NewProtobufEvents(&portions{body, int(portion) + 1}, 4096)
		for {
			e, err := events.Next()
			if err != nil {
				return
			}
			_, _ = ParseBookmark(api.Protobuf, e.Object)
			_, _ = ParseStatus(api.Protobuf, e.Object)
		}
	})
}

func BenchmarkJSONEvents(b *testing.B) {
	pod := &realisticPods(1).Items[0]
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	benchmarkEvents(b, jsonEvent(b, "MODIFIED", pod), func(r io.Reader) Events { return NewJSONEvents(r, testLimit) })
}

func BenchmarkProtobufEvents(b *testing.B) {
	benchmarkEvents(b, protobufEvent(b, "MODIFIED", &realisticPods(1).Items[0]), func(r io.Reader) Events { return NewProtobufEvents(r, testLimit) })
}

func benchmarkEvents(b *testing.B, event []byte, open func(io.Reader) Events) {
	events := open(&endless{event: event})
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := events.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

// endless repeats one event.
type endless struct {
	event []byte
	at    int
}

func (r *endless) Read(p []byte) (int, error) {
	n := copy(p, r.event[r.at:])
	r.at = (r.at + n) % len(r.event)
	return n, nil
}
