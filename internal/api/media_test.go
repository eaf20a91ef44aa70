package api

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
)

// upstreamEndpoint implements the negotiation of RequestScope, which is not exported.
type upstreamEndpoint struct{ protobuf bool }

func (e upstreamEndpoint) AllowsMediaTypeTransform(mimeType, mimeSubType string, gvk *schema.GroupVersionKind) bool {
	if gvk == nil {
		return e.protobuf || mimeSubType != "vnd.kubernetes.protobuf"
	}
	if gvk.GroupVersion() != metav1beta1.SchemeGroupVersion && gvk.GroupVersion() != metav1.SchemeGroupVersion {
		return false
	}
	switch gvk.Kind {
	case "Table":
		return mimeType == "application" && (mimeSubType == "json" || mimeSubType == "yaml")
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return true
	}
	return false
}

func (upstreamEndpoint) AllowsServerVersion(version string) bool   { return version == "v1" }
func (upstreamEndpoint) AllowsStreamSchema(schemaName string) bool { return schemaName == "watch" }

func upstreamMediaTypes() []runtime.SerializerInfo {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme, serializer.WithSerializer(cbor.NewSerializerInfo)).SupportedMediaTypes()
}

var acceptHeaders = []string{
	"", "*/*", "*", "application/*", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "text/html",
	"application/vnd.kubernetes.protobuf,application/json", "application/json, application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf, */*",
	"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
	"application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=Table;v=v1beta1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/vnd.kubernetes.protobuf",
	"application/json;q=0.5,application/yaml", "application/json;q=0.5,application/yaml;q=0.4", "application/yaml;q=0.9,*/*;q=0.8", "*/*,application/yaml",
	"application/json;stream=watch", "application/json;stream=foo", "application/yaml;stream=watch", "application/json;stream=watch,application/vnd.kubernetes.protobuf;stream=watch",
	"application/json;charset=utf-8", "application/json;as=", "application/json;as=Foo;v=v1;g=meta.k8s.io", "application/json;v=v1", "application/json;g=meta.k8s.io;v=v1;as=Table;as=Foo",
	"application/json;pretty=1", "application/json;pretty=0", "application/json; pretty = 1 ", "application/json;sv=v1", "application/json;sv=v2", "application/json;export=1;profile=x",
	"application/json/x", "application", "/json", "application/", ";", ",", ",,application/json", "application/json;q=abc", "application/json;q==1", "application/json;=;a",
	"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8", " application/json ", "application /json", "application/json;as= Table ;v=v1;g=meta.k8s.io",
	"application/apidiscovery.k8s.io;as=x", "application/json;q=0.9,application/cbor;q=1", "application/cbor, */*", "application/cbor-seq", "application/cbor;stream=watch",
	"application/cbor;as=Table;v=v1;g=meta.k8s.io", "application/cbor;as=Table;v=v1;g=meta.k8s.io,application/cbor", "application/cbor;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/cbor;pretty=1", strings.Repeat("text/a;q=0.3,", 13) + "application/yaml;q=0.2,application/json;q=0.2,*/*;q=0.1,application/*",
}

// checkNegotiate compares Negotiate with what kube-apiserver's own code chooses.
func checkNegotiate(t *testing.T, infos []runtime.SerializerInfo, accept string, can Capabilities) {
	t.Helper()
	want, ok := negotiation.NegotiateMediaTypeOptions(accept, infos, upstreamEndpoint{can.Protobuf})
	wantRep, wantVerdict := Representation{}, Forward
	if ok {
		wantRep, wantVerdict = Representation{Pretty: want.Pretty}, Serve
		if want.Accepted.MediaType == "application/yaml" {
			wantRep = Representation{YAML: true} // never indented
		}
		if want.Accepted.MediaType == "application/vnd.kubernetes.protobuf" {
			wantRep = Representation{Encoding: Protobuf}
		}
		if want.Accepted.MediaType == "application/cbor" {
			wantRep = Representation{Encoding: CBOR}
		}
		if target := want.Convert; target != nil {
			switch {
			case target.Version != "v1":
				wantVerdict = Forward
			case target.Kind == "Table":
				wantRep.Transform = Table
				if !can.Table {
					wantVerdict = Forward
				}
			case target.Kind == "PartialObjectMetadataList" && can.List, target.Kind == "PartialObjectMetadata" && !can.List:
				wantRep.Transform = PartialMetadata
			default:
				wantVerdict = Forward
			}
		}
		if wantVerdict == Forward {
			wantRep = Representation{}
		}
	}
	rep, verdict := Negotiate(accept, can)
	if strings.Contains(accept, "drop") {
		// This version of the library does not know the parameter; see TestNegotiateDrop.
		if rep.DropManagedFields = false; verdict == Forward {
			return
		}
	}
	if rep != wantRep || verdict != wantVerdict {
		t.Errorf("%q %+v: %+v %v, want %+v %v", accept, can, rep, verdict, wantRep, wantVerdict)
	}
}

func checkNegotiateStatus(t *testing.T, infos []runtime.SerializerInfo, accept string) {
	t.Helper()
	want := StatusFallback
	if options, ok := negotiation.NegotiateMediaTypeOptions(accept, infos, negotiation.DefaultEndpointRestrictions); ok {
		switch {
		case options.Accepted.MediaType == "application/yaml":
			want = StatusYAML
		case options.Accepted.MediaType == "application/vnd.kubernetes.protobuf":
			want = StatusProtobuf
		case options.Accepted.MediaType == "application/cbor":
			want = StatusCBOR
		case options.Pretty:
			want = StatusPretty
		default:
			want = StatusJSON
		}
	}
	if got := NegotiateStatus(accept, false); got != want {
		t.Errorf("%q: status form %v, want %v", accept, got, want)
	}
}

func allCapabilities() []Capabilities {
	var all []Capabilities
	for i := range 8 {
		all = append(all, Capabilities{List: i&1 != 0, Protobuf: i&2 != 0, Table: i&4 != 0})
	}
	return all
}

func TestNegotiateMatchesLibrary(t *testing.T) {
	infos := upstreamMediaTypes()
	for _, accept := range acceptHeaders {
		for _, can := range allCapabilities() {
			checkNegotiate(t, infos, accept, can)
		}
		checkNegotiateStatus(t, infos, accept)
	}
}

// TestNegotiateDrop expects what a kube-apiserver does that knows the parameter. Other values than
// its own are forwarded, unless an earlier clause is chosen.
func TestNegotiateDrop(t *testing.T) {
	const proto, table = "application/vnd.kubernetes.protobuf", "application/json;as=Table;g=meta.k8s.io;v=v1"
	can := Capabilities{Protobuf: true, Table: true}
	for accept, want := range map[string]Representation{
		"application/json;drop=metadata.managedFields":                                             {DropManagedFields: true},
		"application/json; drop=metadata.managedFields,*/*; drop=metadata.managedFields":           {DropManagedFields: true},
		"*/*;drop= metadata.managedFields ;pretty=1":                                               {DropManagedFields: true, Pretty: true},
		proto + ";drop=metadata.managedFields,application/json;drop=metadata.managedFields":        {Encoding: Protobuf, DropManagedFields: true},
		table + ";drop=metadata.managedFields":                                                     {Transform: Table, DropManagedFields: true},
		"application/json;drop=metadata.managedFields;as=PartialObjectMetadata;g=meta.k8s.io;v=v1": {Transform: PartialMetadata, DropManagedFields: true},
		"application/json;stream=watch;drop=metadata.managedFields":                                {DropManagedFields: true},
		"application/json;drop=spec;drop=metadata.managedFields":                                   {DropManagedFields: true},
		"application/json;drop=":                                                                   {}, // parameters without a value are ignored
		"application/json;drop":                                                                    {},
		"application/json;Drop=spec":                                                               {},
		"application/json,*/*;drop=spec":                                                           {},
		"image/png;drop=spec," + proto:                                                             {Encoding: Protobuf},
		table + ";sv=v9;drop=spec," + proto:                                                        {Encoding: Protobuf},
	} {
		if rep, verdict := Negotiate(accept, can); rep != want || verdict != Serve {
			t.Errorf("%q: %+v %v, want %+v", accept, rep, verdict, want)
		}
	}
	for _, value := range []string{"spec", "metadata", "metadata.managedfields", `"metadata.managedFields"`, "metadata.managedFields+metadata.managedFields", "metadata.managedFields+spec", "spec+metadata.managedFields"} {
		for _, accept := range []string{"application/json;drop=" + value, "application/json;drop=" + value + ",application/json;q=0.1", proto + ";drop=metadata.managedFields;drop=" + value} {
			if rep, verdict := Negotiate(accept, can); verdict != Forward {
				t.Errorf("%q: %+v is served", accept, rep)
			}
		}
	}
}

func FuzzNegotiate(f *testing.F) {
	for i, accept := range acceptHeaders {
		f.Add(accept, uint8(i))
	}
	infos := upstreamMediaTypes()
	f.Fuzz(func(t *testing.T, accept string, bits uint8) {
		checkNegotiate(t, infos, accept, allCapabilities()[bits%8])
		checkNegotiateStatus(t, infos, accept)
	})
}

func TestNegotiateCompression(t *testing.T) {
	for header, want := range map[string]Compression{
		"": Identity, "identity": Identity, "gzip": Gzip, " gzip ,deflate": Gzip, "deflate,gzip": Gzip, "gzip;q=1.0": Identity, "gzip; q=0.5": Identity, "GZIP": Identity, "*": Identity,
		"zstd": Zstd, "gzip, deflate, br, zstd": Gzip, "zstd, gzip;q=0.9": Zstd, "zstd;q=0.2": Zstd, "zstd;q=0": Identity, "zstd;q=0,gzip": Gzip, "zstd;q=0.5,gzip": Gzip, "zstd;q=0.5,gzip;q=0.5": Identity, "zstd;q=0.5, gzip;q=0.9": Identity,
		"zstd;foo": Identity, "zstd;q=x": Identity, "zstd;q=NaN,gzip": Gzip, "br": Identity, ",": Identity,
	} {
		if got := NegotiateCompression(header); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}

func TestNegotiateAllocatesNothing(t *testing.T) {
	accept := acceptHeaders[10]
	can := Capabilities{List: true, Protobuf: true, Table: true}
	if n := testing.AllocsPerRun(100, func() { Negotiate(accept, can); NegotiateStatus(accept, false) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNegotiate(b *testing.B) {
	can := Capabilities{List: true, Protobuf: true, Table: true}
	for name, accept := range map[string]string{"json": "application/json", "kubectl": acceptHeaders[12], "protobuf": acceptHeaders[9]} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Negotiate(accept, can)
			}
		})
	}
}
