// Package encodingtest helps to test encodings: objects, their bytes as kube-apiserver's libraries
// write them, and readers that return bytes in portions.
package encodingtest

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Encodings are all encodings with a Codec.
var Encodings = []api.Encoding{api.JSON, api.Protobuf}

// Object can be encoded in each encoding.
type Object interface {
	runtime.Object
	Marshal() ([]byte, error)
}

// Raw encodes an object, or a part of one, in the form of encoding.Encoded.Raw.
func Raw(t testing.TB, enc api.Encoding, obj any) []byte {
	t.Helper()
	var raw []byte
	var err error
	if enc == api.JSON {
		// apimachinery's serializer uses encoding/json, too.
		var buf bytes.Buffer
		err = json.NewEncoder(&buf).Encode(obj)
		raw = bytes.TrimRight(buf.Bytes(), "\n")
	} else {
		raw, err = obj.(interface{ Marshal() ([]byte, error) }).Marshal()
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// info returns the serializer that kube-apiserver uses.
func info(t testing.TB, enc api.Encoding) runtime.SerializerInfo {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	info, ok := runtime.SerializerInfoForMediaType(serializer.NewCodecFactory(scheme).SupportedMediaTypes(), enc.MediaType())
	if !ok {
		t.Fatalf("no serializer for %s", enc)
	}
	return info
}

// Body returns kube-apiserver's response body for an object or a list.
func Body(t testing.TB, enc api.Encoding, obj runtime.Object) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := info(t, enc).Serializer.Encode(obj, &buf); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// Frame returns what the watch handler of kube-apiserver writes.
func Frame(t testing.TB, enc api.Encoding, eventType string, obj runtime.Object) []byte {
	t.Helper()
	return FrameOf(t, enc, &metav1.WatchEvent{Type: eventType, Object: runtime.RawExtension{Raw: Body(t, enc, obj)}})
}

// FrameOf returns an event as it is written to the stream.
func FrameOf(t testing.TB, enc api.Encoding, event *metav1.WatchEvent) []byte {
	t.Helper()
	var buf bytes.Buffer
	stream := info(t, enc).StreamSerializer
	if err := streaming.NewEncoder(stream.NewFrameWriter(&buf), stream.Serializer).Encode(event); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// Same compares bytes.
func Same(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// Readers return the same bytes in different portions.
func Readers(body []byte) map[string]io.Reader {
	return map[string]io.Reader{
		"whole":   bytes.NewReader(body),
		"bytes":   iotest.OneByteReader(bytes.NewReader(body)),
		"halves":  iotest.HalfReader(bytes.NewReader(body)),
		"dataEOF": iotest.DataErrReader(bytes.NewReader(body)),
	}
}

// Portions reads B, at most N bytes at a time.
type Portions struct {
	B []byte
	N int
}

// Read implements io.Reader.
func (p *Portions) Read(b []byte) (int, error) {
	if len(p.B) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.N)], p.B)
	p.B = p.B[n:]
	return n, nil
}
