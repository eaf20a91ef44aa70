package encoding_test

import (
	"bytes"
	stdjson "encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
	"github.com/kubeweir/kubeweir/internal/encoding/json"
	"github.com/kubeweir/kubeweir/internal/encoding/protobuf"
)

func scanned(t *testing.T, codec encoding.Codec, raw []byte) encoding.Encoded {
	t.Helper()
	s := encoding.Scan{Encoded: encoding.Encoded{Raw: raw}}
	if err := codec.Scan(&s); err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
	return s.Encoded
}

// TestDrop: without its managedFields an object equals what the libraries encode if it has none,
// also with another version.
func TestDrop(t *testing.T) {
	few := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", ManagedFields: encodingtest.Pod(1).ManagedFields}}
	long := encodingtest.Pod(2)
	long.ManagedFields[0].Manager = string(bytes.Repeat([]byte("m"), 1<<21)) // one more byte of length
	each(t, func(t *testing.T, enc api.Encoding, codec encoding.Codec) {
		for _, with := range []*corev1.Pod{encodingtest.Pod(1), few, long, {}} {
			without := with.DeepCopy()
			without.ManagedFields = nil
			o := scanned(t, codec, encodingtest.Raw(t, enc, with))
			want := encodingtest.Raw(t, enc, without)
			if n := encoding.DroppedSize(codec, &o); n != len(want) {
				t.Errorf("%d bytes, want %d", n, len(want))
			}
			dropped := encoding.Drop(codec, o)
			encodingtest.Same(t, "dropped", dropped.Raw, want)
			if again := scanned(t, codec, want); again.MetaStart != dropped.MetaStart || again.MetaEnd != dropped.MetaEnd || again.ManagedEnd != 0 {
				t.Errorf("%+v, scanned %+v", dropped, again)
			}
			if with.ResourceVersion == "" {
				continue
			}
			stamped, err := codec.Stamp(o, 1<<60)
			if err != nil {
				t.Fatal(err)
			}
			without.ResourceVersion = "1152921504606846976"
			encodingtest.Same(t, "stamped and dropped", encoding.Drop(codec, stamped).Raw, encodingtest.Raw(t, enc, without))
		}
	})
}

// TestDropJSON: wherever managedFields are, the rest is JSON and has the same meaning.
func TestDropJSON(t *testing.T) {
	for raw, want := range map[string]string{
		`{"metadata":{"managedFields":[{"a":"}"}]}}`:                                     `{"metadata":{}}`,
		`{"metadata":{"managedFields":[],"name":"n"}}`:                                   `{"metadata":{"name":"n"}}`,
		`{"metadata":{"labels":{"managedFields":"x"},"managedFields":null,"name":"n"}}`:  `{"metadata":{"labels":{"managedFields":"x"},"name":"n"}}`,
		`{"metadata":{"name":"n","managedFields":{}},"spec":{"managedFields":[1]}}`:      `{"metadata":{"name":"n"},"spec":{"managedFields":[1]}}`,
		`{"metadata":{ "managed\u0046ields" : [ 1 ] , "name":"n" }}`:                     `{"metadata":{  "name":"n" }}`,
		"{\"metadata\":{\"name\":\"n\"\n,\n\t\"managedFields\" : [ 1 ]\n}}":              "{\"metadata\":{\"name\":\"n\"\n\n}}",
		`{"metadata":{"a":1,"managedFields":[1],"managedFields":[2],"b":1}}`:             `{"metadata":{"a":1,"b":1}}`,
		`{"metadata":{"a":1,"managedFields":[1],"b":1,"managedFields":[2]}}`:             `{"metadata":{"a":1,"managedFields":[1],"b":1,"managedFields":[2]}}`,
		`{"metadata":{"managedFields":[1],"managedFields":[2]}}`:                         `{"metadata":{"managedFields":[1],"managedFields":[2]}}`,
		`{"metadata":{"managedFields":[1]},"metadata":{"name":"n"}}`:                     `{"metadata":{"managedFields":[1]},"metadata":{"name":"n"}}`,
		`{"metadata":{"ownerReferences":[{"managedFields":1}],"managedField":1,"x":[]}}`: `{"metadata":{"ownerReferences":[{"managedFields":1}],"managedField":1,"x":[]}}`,
	} {
		got := encoding.Drop(json.Codec{}, scanned(t, json.Codec{}, []byte(raw))).Raw
		if string(got) != want || !stdjson.Valid(got) {
			t.Errorf("%s:\n got %s\nwant %s", raw, got, want)
		}
	}
}

// TestDropOddProtobuf: encodings that no API server writes are left unchanged, but entries after
// fields with higher numbers are found.
func TestDropOddProtobuf(t *testing.T) {
	entry := func(b []byte) []byte {
		return protowire.AppendString(protowire.AppendTag(b, 17, protowire.BytesType), "\x0a\x01m")
	}
	name := func(b []byte) []byte {
		return protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), "n")
	}
	object := func(metadata []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), metadata)
	}
	for _, test := range []struct{ raw, want []byte }{
		{object(name(entry(entry(nil)))), object(name(nil))},
		{object(entry(name(entry(nil)))), object(entry(name(entry(nil))))},
		{append([]byte{1<<3 | 2, 0x89, 0x00}, name(entry(nil))[:9]...), append([]byte{1<<3 | 2, 0x89, 0x00}, name(entry(nil))[:9]...)}, // a length in two bytes
	} {
		o := scanned(t, protobuf.Codec{}, test.raw)
		encodingtest.Same(t, "dropped", encoding.Drop(protobuf.Codec{}, o).Raw, test.want)
	}
}
