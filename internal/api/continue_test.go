package api

import (
	"encoding/base64"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"
)

const continuePrefix = "/registry/pods/"

// continueSamples are the JSON texts of valid and invalid tokens.
var continueSamples = []string{
	`{"v":"meta.k8s.io/v1","rv":5,"start":"ns/name\u0000"}`,
	`{"v":"meta.k8s.io/v1","rv":5,"start":"/ns/name\u0000"}`,
	`{"v":"meta.k8s.io/v1","rv":-1,"start":"name\u0000"}`,
	`{"v":"meta.k8s.io/v1","rv":0,"start":"a"}`,
	`{"v":"meta.k8s.io/v1","rv":5,"start":""}`,
	`{"v":"meta.k8s.io/v1","rv":5,"start":"/"}`,
	`{"v":"meta.k8s.io/v1","rv":5,"start":"../a"}`,
	`{"v":"meta.k8s.io/v1","rv":5,"start":"a//b"}`,
	`{"v":"meta.k8s.io/v1","rv":5,"start":"a/"}`,
	`{"v":"v9","rv":5,"start":"a"}`,
	`{}`, `[]`, `null`, ``, `{"V":"meta.k8s.io/v1","RV":7,"start":"a"}`, `{"rv":"x"}`, `{"v":"meta.k8s.io/v1","rv":1.5,"start":"a"}`,
}

func checkContinue(t *testing.T, token string) {
	t.Helper()
	wantKey, wantRV, wantErr := storage.DecodeContinue(token, continuePrefix)
	got, err := DecodeContinue(token)
	if wantErr != nil {
		if want := fmt.Sprintf("invalid continue token: %v", wantErr); err == nil || err.Error() != want || !apierrors.IsBadRequest(err) {
			t.Errorf("%q: error %v, want %s", token, err, want)
		}
		return
	}
	if err != nil || continuePrefix+got.Start != wantKey || got.ResourceVersion != wantRV {
		t.Fatalf("%q: %+v, %v; want %q %d", token, got, err, wantKey, wantRV)
	}
	checkEncodeContinue(t, got.Start, got.ResourceVersion)
}

func TestContinueMatchesLibrary(t *testing.T) {
	for _, text := range continueSamples {
		checkContinue(t, base64.RawURLEncoding.EncodeToString([]byte(text)))
	}
	for _, token := range []string{"!", "abc", "eyJ2Ijoi", "e30=", "e30"} {
		checkContinue(t, token)
	}
}

func FuzzDecodeContinue(f *testing.F) {
	for _, text := range continueSamples {
		f.Add([]byte(text), true)
	}
	f.Add([]byte("eyJ2Ijoi"), false)
	f.Fuzz(func(t *testing.T, data []byte, encode bool) {
		token := string(data)
		if encode {
			token = base64.RawURLEncoding.EncodeToString(data)
		}
		checkContinue(t, token)
	})
}

// checkEncodeContinue compares with the watch cache, whose prefix has no trailing slash.
func checkEncodeContinue(t *testing.T, start string, rv int64) {
	t.Helper()
	const prefix = "/registry/pods"
	want, err := storage.EncodeContinue(prefix+"/"+start, prefix, rv)
	if got := (ContinueToken{ResourceVersion: rv, Start: start}).Encode(); err != nil || got != want {
		t.Errorf("%q %d: %q, want %q (%v)", start, rv, got, want, err)
	}
}

func FuzzEncodeContinue(f *testing.F) {
	f.Add("ns/name\x00", int64(5))
	f.Add("<&>\u2028\xff", int64(-1))
	f.Fuzz(checkEncodeContinue)
}
