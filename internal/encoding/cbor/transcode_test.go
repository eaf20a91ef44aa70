package cbor_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kjson "sigs.k8s.io/json"

	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor/cbortest"
)

// untyped are JSON values of all kinds.
var untyped = []string{
	`{}`, `[]`, `""`, `null`, `true`, `false`, `{"a":null,"b":[],"c":{}}`, " \t\r\n{ \"a\" : [ 1 , 2 ] , \"b\" : { } } \n",
	// Numbers: 64-bit integers stay integers, everything else is a float.
	`0`, `-0`, `1`, `-1`, `23`, `24`, `255`, `256`, `65535`, `65536`, `4294967295`, `4294967296`, `-24`, `-25`, `-256`, `-257`,
	`999999999999999999`, `-999999999999999999`, `9223372036854775807`, `-9223372036854775808`, `9223372036854775808`, `-9223372036854775809`,
	`123456789012345678901234567890`, `1.0`, `-0.0`, `0.0`, `1e3`, `1E3`, `1e+3`, `1e-3`, `1.5`, `0.1`, `65504.0`, `65505.5`, `1e5`, `1e38`, `1e39`, `3.4028235677973366e38`,
	`5.9604644775390625e-8`, `6.103515625e-5`, `2.98023223876953125e-8`, `1e-45`, `1e-46`, `5e-324`, `1e-400`, `1.7976931348623157e308`, `2.5e-1`, `6.097555160522461e-5`,
	`0.333251953125`, `0.33333334326744`,
	// Strings.
	`"plain"`, `"é日😀"`, `"\u00e9\u65e5\ud83d\ude00"`, `"\"\\\/\b\f\n\r\t"`, `"\ud800"`, `"\ud800\ud800\udc00"`, `"\udc00x"`, `"\ud83dx"`, `"\ud83d\n"`, `"\u0000"`, `"<\u003e&"`,
	"\"\xff\xfe\"", "\"a\xc3\"", "\"" + strings.Repeat("\xff", 10) + "\"", "\"\x7f\"", `{"\u0061":1,"b\n":2}`, `"` + strings.Repeat(`\n`, 30) + `"`, `"` + strings.Repeat(`\u00e9`, 200) + `"`,
}

// TestUntyped: JSON becomes the bytes that apimachinery encodes after decoding it.
func TestUntyped(t *testing.T) {
	values := append([]string(nil), untyped...)
	for _, n := range []int{22, 23, 24, 255, 256, 300, 65535, 65536, 70000} {
		values = append(values, `"`+strings.Repeat("x", n)+`"`)
		var object, array []string
		for i := range n {
			object = append(object, fmt.Sprintf(`"key-%d":%d`, i, i))
			array = append(array, fmt.Sprint(i))
		}
		values = append(values, "["+strings.Join(array, ",")+"]")
		if n <= 300 {
			values = append(values, "{"+strings.Join(object, ",")+"}")
		}
	}
	for _, text := range values {
		compareUntyped(t, []byte(text))
	}
}

// compareUntyped transcodes text with both implementations.
func compareUntyped(t *testing.T, text []byte) {
	t.Helper()
	prefix := []byte("before")
	got, err := cbor.Append(prefix, text, cbor.Untyped)
	var v any
	if wantErr := utiljson.Unmarshal(text, &v); wantErr != nil || err != nil {
		if (wantErr == nil) != (err == nil) {
			t.Fatalf("%.300q: error %v, apimachinery's %v", text, err, wantErr)
		}
		if string(got) != string(prefix) {
			t.Fatalf("%.300q: %v, but something was appended", text, err)
		}
		return
	}
	if got = got[len(prefix):]; hasDuplicates(text) {
		return // the upstream's JSON has none, except in raw shapes
	}
	want, err := direct.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(cbortest.Sorted(t, got), want) {
		t.Fatalf("%.300q:\n got %.600s\nwant %.600s", text, hex.EncodeToString(cbortest.Sorted(t, got)), hex.EncodeToString(want))
	}
}

func hasDuplicates(text []byte) bool {
	var v any
	strict, err := kjson.UnmarshalStrict(text, &v, kjson.DisallowDuplicateFields)
	return err != nil || len(strict) > 0
}

func TestMalformed(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"", "JSON, byte 0: a value is expected"},
		{"{", "JSON, byte 1: a key is expected"},
		{`{"a"}`, "JSON, byte 4: a colon is expected"},
		{`{"a":}`, "JSON, byte 5: a value is expected"},
		{`{"a":1`, "JSON, byte 6: a comma or the end of the object or array is expected"},
		{`{"a":1,}`, "JSON, byte 7: a key is expected"},
		{`[1,]`, "JSON, byte 3: a value is expected"},
		{`[1 2]`, "JSON, byte 3: a comma or the end of the object or array is expected"},
		{`{} {}`, "JSON, byte 3: more than one value"},
		{`01`, "JSON, byte 1: more than one value"},
		{`-`, "JSON, byte 1: a digit is expected"},
		{`1.`, "JSON, byte 2: a digit is expected"},
		{`1e`, "JSON, byte 2: a digit is expected"},
		{`.5`, "JSON, byte 0: a value is expected"},
		{`1e400`, "JSON, byte 0: number 1e400 is too large"},
		{`nul`, "JSON, byte 0: a value is expected"},
		{`"a`, "JSON, byte 2: a string does not end"},
		{"\"a\n\"", "JSON, byte 2: a control character in a string"},
		{`"\x"`, "JSON, byte 2: no such escape sequence"},
		{`"\u12g4"`, "JSON, byte 2: four hexadecimal digits are expected"},
		{`"\`, "JSON, byte 2: no such escape sequence"},
		{strings.Repeat("[", 10001), "JSON, byte 10000: exceeded max depth"},
	} {
		_, err := cbor.Append(nil, []byte(tc.text), cbor.Untyped)
		var syntax *cbor.SyntaxError
		if !errors.As(err, &syntax) || err.Error() != tc.want {
			t.Errorf("%.20q: %v, want %s", tc.text, err, tc.want)
		}
		compareUntyped(t, []byte(tc.text))
	}
	compareUntyped(t, []byte(strings.Repeat("[", 10000)+strings.Repeat("]", 10000)))
}

// FuzzJSON: any bytes are transcoded as apimachinery would, or rejected by both.
func FuzzJSON(f *testing.F) {
	for _, text := range untyped {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { compareUntyped(t, text) })
}
