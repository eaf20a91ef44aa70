package cbor_test

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
)

// items are hexadecimal CBOR items, some of which apimachinery rejects.
var items = []string{
	"", "00", "17", "1818", "1bffffffffffffffff", "1b7fffffffffffffff", "3b7fffffffffffffff", "3bffffffffffffffff", "20", "3863",
	"f4", "f5", "f6", "f7", "f0", "e0", "f8ff", "f820", "f818", "f800", "ff", "f9", "fa", "fb00", "f93c00", "f98000", "f97bff", "f90001", "f90400", "f97c00", "f97e00", "fa47c35000", "fa7f800000", "fb3ff199999999999a",
	"fb7ff8000000000000", "fb7e37e43c8800759c", "fa00000001", "fb4415af1d78b58c40", "fb4340000000000000",
	"40", "4161", "42c3a9", "41ff", "43610a22", "60", "6161", "62c3a9", "61ff", "5f41614162ff", "7f61616162ff", "5f6161ff", "5f5f4161ffff", "7f61c361a9ff", "5f", "5f41", "7fff", "5fff", "58", "5800", "5b7fffffffffffffff", "5bffffffffffffffff",
	"80", "8101", "820102", "9f0102ff", "9fff", "9f", "81", "9bffffffffffffffff", "9b7fffffffffffffff", "9a80000000",
	"a0", "a1416101", "a1616101", "a2416101416202", "a2416101616102", "a2416101416102", "bf416101ff", "bf4161ff", "bfff", "bf416101416102ff", "a1f601", "a2f6014001", "a2416101f602", "a1f701", "a10101", "a12001", "a1f401", "a1f93c0001", "a18001", "a1a001", "a1c1410101", "a1f82001",
	"ba00200001", "ba00200000", "bb8000000000000000",
	"d9d9f700", "d9d9f7d9d9f7a0", "c2d9d9f700", "c0d9d9f76161", "a1d9d9f7416101", "d9d9f7",
	"c074323031332d30332d32315432303a30343a30305a", "c07819323031332d30332d32315432303a30343a30302b30313a3030", "c054323031332d30332d32315432303a30343a30305a", "c06161", "c000", "c0f6", "c07f6161ff",
	"c11a514b67b0", "c1fb41d452d9ec200000", "c1fbfe37e43c8800759c", "c1f97e00", "c1f97c00", "c1f9fc00", "c120", "c1f93c00", "c1fb7e37e43c8800759c", "c11b7fffffffffffffff", "c13b7fffffffffffffff", "c11bffffffffffffffff", "c13bffffffffffffffff", "c16161", "c1f6", "a1c0617801", "a1c10101",
	"c24101", "c34101", "c200", "c5c24101",
	"d5420102", "d6420102", "d7420102", "d6d5420102", "d682410141ff", "d6a1416141ff", "a1d6416101", "a2d64161016459513d3d02", "d641", "d66161", "d600", "d6d74102", "d65f41ffff", "d681d5420102", "d5a1426964d6410f",
	"c4820001", "d81842aabb", "d9ffff4161", "db00000000ffffffff4161", "c8c8c80a",
	"0000", "1c", "3d", "5c", "9e", "bd", "fc", "1f", "3f", "df", "dc",
	"a26161f1616102", "a2fbf1", "8182f9",
}

// TestItems: each item is accepted or rejected as by apimachinery, with the same error.
func TestItems(t *testing.T) {
	for _, text := range items {
		item, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		compareItem(t, item)
		_, got := cbor.AppendJSON(nil, item, cbor.Untyped)
		var v any
		if want := direct.Unmarshal(item, &v); want != nil && want.Error() != got.Error() {
			t.Errorf("%s: %v\nwant %v", text, got, want)
		}
	}
	nested := func(n int) []byte { return append(bytes.Repeat([]byte{0x81}, n), 0xf6) }
	tags := func(n int) []byte { return append(bytes.Repeat([]byte{0xc8}, n), 0xf6) }
	for _, item := range [][]byte{nested(10_000), nested(10_001), tags(10_001), tags(10_002)} {
		compareItem(t, item)
	}
}

// compareItem decodes an item with both implementations.
func compareItem(t *testing.T, item []byte) {
	t.Helper()
	prefix := []byte("before")
	text, err := cbor.AppendJSON(prefix, item, cbor.Untyped)
	var want any
	wantErr := direct.Unmarshal(item, &want)
	if err != nil || wantErr != nil {
		if string(text) != string(prefix) {
			t.Fatalf("%x: %v, but something was appended", item, err)
		}
		// Keys that differ only in invalid UTF-8 are equal in JSON.
		if (err == nil) != (wantErr == nil) && (wantErr != nil || allUTF8(want)) {
			t.Fatalf("%x: error %v, apimachinery's %v", item, err, wantErr)
		}
		return
	}
	text = text[len(prefix):]
	var got any
	if err := utiljson.Unmarshal(text, &got); err != nil {
		t.Fatalf("%x became %s: %v", item, text, err)
	}
	if !utf8.Valid(text) || allUTF8(want) && !reflect.DeepEqual(got, want) {
		t.Fatalf("%x became %s:\n got %#v\nwant %#v", item, text, got, want)
	}
}

func allUTF8(v any) bool {
	switch v := v.(type) {
	case string:
		return utf8.ValidString(v)
	case []any:
		for _, e := range v {
			if !allUTF8(e) {
				return false
			}
		}
	case map[string]any:
		for k, e := range v {
			if !utf8.ValidString(k) || !allUTF8(e) {
				return false
			}
		}
	}
	return true
}

// TestDuplicateKeys: duplicates are also found in maps with many keys, and the error names the
// second of the two.
func TestDuplicateKeys(t *testing.T) {
	for _, n := range []int{2, 16, 17, 300} {
		text := []byte{0xb9, byte(n >> 8), byte(n)}
		for i := range n {
			text = append(text, 0x42, byte('a'+i%26), byte('0'+i/26), 0x00)
		}
		compareItem(t, text)
		text[3+4*(n-1)+1], text[3+4*(n-1)+2] = 'a', '0'
		_, got := cbor.AppendJSON(nil, text, cbor.Untyped)
		var v any
		if want := direct.Unmarshal(text, &v); want == nil || got == nil || got.Error() != want.Error() {
			t.Errorf("%d: %v, want %v", n, got, want)
		}
	}
}

// TestBytes: where JSON has bytes they are base64 whatever the tag, and text strings are rejected.
func TestBytes(t *testing.T) {
	secret := cbor.ShapeOf(schema.GroupVersionKind{Version: "v1", Kind: "Secret"})
	const head = "a14464617461a14161" // {"data":{"a":
	for _, tc := range []struct{ value, want string }{
		{"d642fbff", `{"data":{"a":"+/8="}}`},
		{"d542fbff", `{"data":{"a":"+/8="}}`},
		{"d742fbff", `{"data":{"a":"+/8="}}`},
		{"4459513d3d", `{"data":{"a":"YQ=="}}`},
		{"f6", `{"data":{"a":null}}`},
		{"6459513d3d", "cbor: cannot unmarshal UTF-8 text string into Go value of type []uint8"},
	} {
		item, _ := hex.DecodeString(head + tc.value)
		got, err := cbor.AppendJSON(nil, item, secret)
		if err != nil {
			got = []byte(err.Error())
		}
		if string(got) != tc.want {
			t.Errorf("%s: %s, want %s", tc.value, got, tc.want)
		}
	}
}

// TestQuoting: the JSON is also valid YAML.
func TestQuoting(t *testing.T) {
	text := "a\"\\\n\r\t\x00\x1f\u007f\u0085\u009f\u00a0\u2028\u2029\ufeff\ufffe\uffff\U0001f600é"
	item, err := direct.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	const want = `"a\"\\\n\r\t\u0000\u001f\u007f\u0085\u009f` + "\u00a0" + `\u2028\u2029\ufeff\ufffe\uffff` + "\U0001f600é\""
	if got, err := cbor.AppendJSON(nil, item, cbor.Untyped); err != nil || string(got) != want {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
}

// FuzzCBOR: any bytes are decoded as apimachinery would, or refused by both; and what comes out goes back.
func FuzzCBOR(f *testing.F) {
	for _, text := range items {
		item, _ := hex.DecodeString(text)
		f.Add(item)
	}
	f.Fuzz(func(t *testing.T, item []byte) {
		compareItem(t, item)
		if text, err := cbor.AppendJSON(nil, item, cbor.Untyped); err == nil {
			compareUntyped(t, text)
		}
	})
}
