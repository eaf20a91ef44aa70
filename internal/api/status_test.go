package api

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
)

// upstreamError writes an error with kube-apiserver's own code.
func upstreamError(codecs serializer.CodecFactory, err error, accept string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	request := httptest.NewRequest("GET", "/api/v1/pods", nil)
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, recorder, request)
	return recorder
}

func statusSamples() map[string]error {
	pods := schema.GroupResource{Resource: "pods"}
	expired := apierrors.NewResourceExpired("too old")
	expired.ErrStatus.Continue = ContinueToken{ResourceVersion: -1, Start: "ns/name\x00"}.Encode()
	return map[string]error{
		"unauthorized": apierrors.NewUnauthorized("Unauthorized"),
		"forbidden":    apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no reason")),
		"notfound":     NewNotFound(pods, "x"),
		"toomany":      NewTooManyRequests("later", 7),
		"unavailable":  NewServiceUnavailable("gone"),
		"toolarge":     NewTooLargeResourceVersion(9, 5, 1),
		"toolarge0":    NewTooLargeResourceVersion(9, 5, 0),
		"badversion":   NewInvalidListResourceVersion("abc", errors.New("parse")),
		"badversion2":  InvalidResourceVersion("abc", errors.New("parse")),
		"continue":     expired,
		"watch":        NewExpiredWatch(5, 9),
		"plain":        errors.New("plain <text>"),
		"empty":        &apierrors.StatusError{},
		"invalid":      apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", field.ErrorList{field.Required(field.NewPath("a"), "b")}),
	}
}

func TestStatusResponseMatchesLibrary(t *testing.T) {
	scheme := runtime.NewScheme()
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	codecs := serializer.NewCodecFactory(scheme)
	for name, err := range statusSamples() {
		for _, accept := range []string{"", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/json;pretty=1", "text/html",
			"application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"} {
			want := upstreamError(codecs, err, accept)
			got := StatusResponse(err, NegotiateStatus(accept, false))
			if got.Status != want.Code || !bytes.Equal(got.Body, want.Body.Bytes()) {
				t.Errorf("%s %q: %d %q\nwant %d %q", name, accept, got.Status, got.Body, want.Code, want.Body)
			}
			for _, header := range []string{"Content-Type", "Retry-After"} {
				if got.Header.Get(header) != want.Header().Get(header) {
					t.Errorf("%s %q: %s %q, want %q", name, accept, header, got.Header.Get(header), want.Header().Get(header))
				}
			}
			if got.Header.Get("Cache-Control") != "no-cache, private" || got.Length != int64(len(got.Body)) {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

func TestStatusResponseUnwraps(t *testing.T) {
	response := StatusResponse(fmt.Errorf("reading: %w", NewNotFound(schema.GroupResource{Resource: "pods"}, "x")), StatusJSON)
	const body = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"x\" not found","reason":"NotFound","details":{"name":"x","kind":"pods"},"code":404}` + "\n"
	if response.Status != http.StatusNotFound || string(response.Body) != body {
		t.Errorf("%d %s", response.Status, response.Body)
	}
}

// TestMain disables the logging of the libraries that serve as oracles.
func TestMain(m *testing.M) {
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

func TestErrorsMatchLibrary(t *testing.T) {
	if got, want := NewTooLargeResourceVersion(9, 5, 1), storage.NewTooLargeResourceVersionError(9, 5, 1); got.Error() != want.Error() || !storage.IsTooLargeResourceVersion(got) {
		t.Errorf("%v, want %v", got, want)
	}
	_, parseErr := ParseResourceVersion("abc")
	_, want := storage.APIObjectVersioner{}.ParseResourceVersion("abc")
	if got := InvalidResourceVersion("abc", parseErr); got.Error() != want.Error() {
		t.Errorf("%v, want %v", got, want)
	}
	if got := NewInvalidListResourceVersion("abc", parseErr); got.Error() != "invalid resource version: "+want.Error() || !apierrors.IsBadRequest(got) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := NewExpiredWatch(5, 9).Error(); got != "too old resource version: 5 (8)" {
		t.Error(got)
	}
}
