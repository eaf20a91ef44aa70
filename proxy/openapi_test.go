package proxy

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/consistency"
	"github.com/kubeweir/kubeweir/proxy/openapi"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// TestOpenAPIDocumentsOfOneForm: what was sent to somebody who accepts more is not kept for who accepts less, though it
// has the same ETag.
func TestOpenAPIDocumentsOfOneForm(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, func(*Options) {})
		b.upstream.response = func(r *api.Request) *api.Response {
			if r.Header.Has("If-None-Match") {
				return &api.Response{Status: 304}
			}
			return &api.Response{Status: 200, Header: api.Header{{Name: "Etag", Value: `"1"`}}, Body: []byte(strings.Join(r.Header.Values("Accept"), " or "))}
		}
		for range 2 {
			for want, accept := range map[string][]string{"a": {"a"}, "a or b": {"a", "b"}, "b": {"b"}, "": nil} {
				r := request("GET /openapi/v2")
				for _, a := range accept {
					r.Header.Add("Accept", a)
				}
				resp := b.gateway.Serve(t.Context(), r)
				if resp.Done(0, nil); string(resp.Body) != want {
					t.Errorf("%q: %q", accept, resp.Body)
				}
			}
		}
		if n, _ := b.gateway.memory.openAPIDocuments.Size(); n != 4 {
			t.Errorf("%d documents are kept", n)
		}
	})
}

// TestOpenAPIDocumentsAreBounded: the documents used last are kept, in so many bytes and so many of them, whatever clients
// ask for.
func TestOpenAPIDocumentsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, func(*Options) {})
		body := strings.Repeat("x", openapi.MaxBytes/4)
		b.upstream.response = func(r *api.Request) *api.Response {
			if r.Header.Get("If-None-Match") == `"1"` {
				return &api.Response{Status: 304}
			}
			return &api.Response{Status: 200, Header: api.Header{{Name: "Etag", Value: `"1"`}}, Length: -1, BodyTo: strings.NewReader(body)}
		}
		get := func(path string) {
			if status, got, header := b.do("GET " + path); status != 200 || got != body || header.Get("Etag") != `"1"` {
				t.Fatalf("%s: %d with %d bytes, %v", path, status, len(got), header)
			}
		}
		for i := range 6 {
			get(fmt.Sprintf("/openapi/v3/%d", i))
			get("/openapi/v3/0")
		}
		for i, want := range []bool{true, false, false, true, true, true} {
			if saved := b.gateway.memory.openAPIDocuments.Get(consistency.Key{Path: fmt.Sprintf("/openapi/v3/%d", i)}) != nil; saved != want {
				t.Errorf("document %d: kept %v, want %v", i, saved, want)
			}
		}
		before, _ := b.gateway.memory.openAPIDocuments.Size()
		body = strings.Repeat("y", openapi.MaxDocument+1)
		b.upstream.response = func(*api.Request) *api.Response {
			return &api.Response{Status: 200, Header: api.Header{{Name: "Etag", Value: `"2"`}}, Length: -1, BodyTo: strings.NewReader(body)}
		}
		if _, got, _ := b.do("GET /openapi/v2"); got != body {
			t.Errorf("a document that is too large: %d bytes", len(got))
		}
		if n, bytes := b.gateway.memory.openAPIDocuments.Size(); n != before || bytes != before*openapi.MaxBytes/4 {
			t.Errorf("%d documents of %d bytes are left of %d", n, bytes, before)
		}
		b.do("GET /openapi/v3/long?" + strings.Repeat("x", openapi.MaxKey))
		if n, _ := b.gateway.memory.openAPIDocuments.Size(); n != before {
			t.Error("a document with a long name is kept")
		}
		body = "z"
		for i := range openapi.MaxDocuments + 10 {
			b.do(fmt.Sprintf("GET /openapi/v3?%d", i))
		}
		if n, bytes := b.gateway.memory.openAPIDocuments.Size(); n != openapi.MaxDocuments || bytes != openapi.MaxDocuments {
			t.Errorf("%d documents of %d bytes are kept", n, bytes)
		}
	})
}

// TestOpenAPIOffline: while the upstream cannot be reached, documents that it confirmed lately are served with their age to
// clients that are served offline and may read them, a 304 to those who have them.
func TestOpenAPIOffline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var away atomic.Bool
		b := newGatewayBench(t, func(o *Options) {
			o.Reachable = func() bool { return !away.Load() }
			o.Policy.Offline = policy.Offline{TTL: time.Hour}
			o.Policy.Rules = []policy.Rule{{Match: policy.Match{Users: []string{"jane"}}, Settings: policy.Settings{Offline: policy.Yes}}}
		})
		b.upstream.response = func(r *api.Request) *api.Response {
			switch {
			case away.Load():
				return &api.Response{Status: 503}
			case r.Header.Has("If-None-Match"):
				return &api.Response{Status: 304}
			}
			if r.Path == openapi.Index {
				return &api.Response{Status: 200, Body: []byte("index")}
			}
			return &api.Response{Status: 200, Header: api.Header{{Name: "Etag", Value: `"1"`}}, Body: []byte("{}")}
		}
		const document, jane, joe = "GET /openapi/v2", "Authorization: Bearer jane", "Authorization: Bearer joe"
		b.do(document, jane)
		for want, header := range map[int]string{200: "X: y", 304: `If-None-Match: "1"`} {
			time.Sleep(50 * time.Minute)
			if code, _, _ := b.do(document, jane, header); code != want { // which confirms it
				t.Fatal(code)
			}
		}
		b.do("GET /openapi/v3", jane)
		away.Store(true)
		time.Sleep(40 * time.Minute)
		if code, body, h := b.do(document, jane); code != 200 || body != "{}" || h.Get("Age") != "2400" || h.Get("Etag") != `"1"` {
			t.Errorf("%d %q %v", code, body, h)
		}
		if code, body, h := b.do(document, jane, `If-None-Match: "1"`); code != 304 || body != "" || h.Get("Etag") != `"1"` {
			t.Errorf("%d %q %v", code, body, h)
		}
		if code, body, _ := b.do("GET /openapi/v3", jane); code != 200 || body != "index" {
			t.Errorf("the index: %d %q", code, body)
		}
		for _, line := range []string{"GET /openapi/v3/apis", document + "?other"} {
			if code, _, _ := b.do(line, jane); code != 503 {
				t.Errorf("%s, which is not kept: %d", line, code)
			}
		}
		if code, _, _ := b.do(document, joe); code != 503 {
			t.Errorf("a client who is not served offline: %d", code)
		}
		b.upstream.allowed = func(*authorizationv1.SubjectAccessReviewSpec) bool { return false }
		b.gateway.Authorizer.Invalidate()
		if code, _, _ := b.do(document, jane); code != 403 {
			t.Errorf("a client who may not read it: %d", code)
		}
		b.upstream.allowed = nil
		b.gateway.Authorizer.Invalidate()
		time.Sleep(30 * time.Minute)
		if code, _, _ := b.do(document, jane); code != 503 {
			t.Errorf("older than it may be: %d", code)
		}
	})
}

// TestOpenAPIDocumentsThatBreakOff: of a document that does not come to its end nothing is kept or counted.
func TestOpenAPIDocumentsThatBreakOff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, func(*Options) {})
		broken := errors.New("broken off")
		b.upstream.response = func(*api.Request) *api.Response {
			return &api.Response{Status: 200, Header: api.Header{{Name: "Etag", Value: `"1"`}}, Length: -1, BodyTo: writerTo(func(w io.Writer) (int64, error) {
				n, err := io.WriteString(w, "half")
				return int64(n), errors.Join(err, broken)
			})}
		}
		resp := b.gateway.Serve(t.Context(), request("GET /openapi/v2"))
		var got strings.Builder
		_, err := resp.BodyTo.WriteTo(&got)
		resp.Done(int64(got.Len()), err)
		if !errors.Is(err, broken) || got.String() != "half" {
			t.Errorf("%q, %v", got.String(), err)
		}
		if n, bytes := b.gateway.memory.openAPIDocuments.Size(); n != 0 || bytes != 0 {
			t.Errorf("%d documents, %d bytes", n, bytes)
		}
	})
}

type writerTo func(io.Writer) (int64, error)

func (f writerTo) WriteTo(w io.Writer) (int64, error) { return f(w) }
