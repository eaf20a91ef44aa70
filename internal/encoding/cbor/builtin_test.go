package cbor_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor/cbortest"
)

// filler returns a filler of random objects.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 2).MaxDepth(14).Funcs(
		func(s *string, c randfill.Continue) {
			alphabet := []rune("ab/\"\\<>&\n\t\x01\u007fé日\u2028😀")
			var sb strings.Builder
			for range c.Intn(40) {
				sb.WriteRune(alphabet[c.Intn(len(alphabet))])
			}
			*s = sb.String()
		},
		func(f *float64, c randfill.Continue) {
			*f = []float64{0, math.Copysign(0, -1), 1, -1, 0.5, 1e3, 65504, 65536, 1e20, 1e21, 1e300, 0.1, 5e-8, 5e-324}[c.Intn(14)]
		},
		func(t *metav1.Time, c randfill.Continue) {
			if *t = (metav1.Time{}); c.Bool() {
				*t = metav1.NewTime(time.Unix(c.Int63n(1<<32), c.Int63n(1e9)).UTC())
			}
		},
		func(t *metav1.MicroTime, c randfill.Continue) {
			if *t = (metav1.MicroTime{}); c.Bool() {
				*t = metav1.NewMicroTime(time.Unix(c.Int63n(1<<32), c.Int63n(1e9)).UTC())
			}
		},
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(c.Int63n(1<<40), resource.DecimalSI)
		},
		func(v *intstr.IntOrString, c randfill.Continue) {
			if *v = intstr.FromInt32(c.Int31()); c.Bool() {
				*v = intstr.FromString("25%")
			}
		},
		func(f *metav1.FieldsV1, c randfill.Continue) {
			f.SetRawString(`{"f:spec":{"f:a\"b":{},"k:{\"uid\":\"é\"}":{".":{}}}}`)
		},
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = rawJSON(c) },
		func(r *apiextensionsv1.JSON, c randfill.Continue) { r.Raw = rawJSON(c) },
		func(r *apiextensionsv1beta1.JSON, c randfill.Continue) { r.Raw = rawJSON(c) },
	)
}

// rawJSON returns JSON as a client may write it.
func rawJSON(c randfill.Continue) []byte {
	return []byte([]string{
		`{"b":1,"a":1.0,"c":[1e3,-0,9223372036854775808,null]}`, `{"a":1,"a":{"x":"\ud800"}}`, `"text"`, `12`, `[]`, `true`,
	}[c.Intn(6)])
}

// TestBuiltInTypes: random objects of all built-in types are transcoded as apimachinery's
// serializer encodes them.
func TestBuiltInTypes(t *testing.T) {
	scheme := builtInTypes(t)
	encoder := serializer.NewSerializer(scheme, scheme)
	for _, gvk := range builtInKinds(scheme) {
		t.Run(gvk.GroupVersion().String()+" "+gvk.Kind, func(t *testing.T) {
			f := filler(1)
			for range 3 {
				obj, err := scheme.New(gvk)
				if err != nil {
					t.Fatal(err)
				}
				f.Fill(obj)
				obj.GetObjectKind().SetGroupVersionKind(gvk)
				compareTyped(t, encoder, gvk, obj)
			}
		})
	}
}

func compareTyped(t *testing.T, encoder serializer.Serializer, gvk schema.GroupVersionKind, obj runtime.Object) {
	t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := encoder.Encode(obj, &want); err != nil {
		t.Fatal(err)
	}
	got, err := cbor.Append([]byte(cbor.SelfDescribed), text, cbor.ShapeOf(gvk))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !bytes.Equal(cbortest.Sorted(t, got), cbortest.Sorted(t, want.Bytes())) {
		t.Fatalf("%s\n got %s\nwant %s", text, cbortest.Diagnose(cbortest.Sorted(t, got)), cbortest.Diagnose(cbortest.Sorted(t, want.Bytes())))
	}
}

// TestShapesOfTypes checks some well-known types.
func TestShapesOfTypes(t *testing.T) {
	for _, tc := range []struct {
		group, version, kind, json, want string
	}{
		{"", "v1", "Secret", `{"data":{"a":"AAH/"},"stringData":{"a":"AAH/"}}`, `{'data': {'a': 22(h'0001ff')}, 'stringData': {'a': 'AAH/'}}`},
		{"", "v1", "Secret", `{"data":{"a":""}}`, `{'data': {'a': 22(h'')}}`},
		{"", "v1", "ConfigMap", `{"binaryData":{"a":"YQ=="},"data":{"a":"YQ=="}}`, `{'binaryData': {'a': 22('a')}, 'data': {'a': 'YQ=='}}`},
		{"certificates.k8s.io", "v1", "CertificateSigningRequest", `{"spec":{"request":"YQ=="},"status":{"certificate":"YWI="}}`,
			`{'spec': {'request': 22('a')}, 'status': {'certificate': 22('ab')}}`},
		{"admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", `{"webhooks":[{"clientConfig":{"caBundle":"YQ=="}}]}`,
			`{'webhooks': [{'clientConfig': {'caBundle': 22('a')}}]}`},
		{"apiregistration.k8s.io", "v1", "APIService", `{"spec":{"caBundle":"YQ=="}}`, `{'spec': {'caBundle': 22('a')}}`},
		{"apiextensions.k8s.io", "v1", "CustomResourceDefinition",
			`{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"properties":{"a":{"items":{"maximum":1,"maxLength":1}}}}}}]}}`,
			`{'spec': {'versions': [{'schema': {'openAPIV3Schema': {'properties': {'a': {'items': {'maximum': 1.0, 'maxLength': 1}}}}}}]}}`},
		{"example.com", "v1", "Secret", `{"data":{"a":"YQ=="}}`, `{'data': {'a': 'YQ=='}}`},
		{"", "v1", "Pod", `{"spec":{"hostNetwork":true}}`, `{'spec': {'hostNetwork': true}}`},
	} {
		shape := cbor.ShapeOf(schema.GroupVersionKind{Group: tc.group, Version: tc.version, Kind: tc.kind})
		got, err := cbor.Append(nil, []byte(tc.json), shape)
		if err != nil || cbortest.Diagnose(got) != tc.want {
			t.Errorf("%s %s:\n got %s (%v)\nwant %s", tc.kind, tc.json, cbortest.Diagnose(got), err, tc.want)
		}
	}
}

// TestBytesAreBase64: a string that is not base64 is rejected where bytes are expected.
func TestBytesAreBase64(t *testing.T) {
	secret := cbor.ShapeOf(schema.GroupVersionKind{Version: "v1", Kind: "Secret"})
	if got, err := cbor.Append(nil, []byte(`{"data":{"a":"???"}}`), secret); err == nil {
		t.Errorf("accepted as %s", cbortest.Diagnose(got))
	}
	long := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 100_000))
	got, err := cbor.Append(nil, []byte(`{"data":{"a":"`+long+`","b":null}}`), secret)
	if err != nil || len(got) != 100_000+1+5+2+1+1+5+2+1 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
