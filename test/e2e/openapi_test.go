package e2e

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/steady"
)

// openAPIPaths returns the paths of the documents: of all types, of all groups, and of each group
// by its hash.
func openAPIPaths(ctx context.Context, t *testing.T, c *client) []string {
	t.Helper()
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		}
	}
	must(t, json.Unmarshal([]byte(c.get(ctx, t, "/openapi/v3", typeJSON).body), &index))
	paths := []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"}
	for _, p := range index.Paths {
		paths = append(paths, p.ServerRelativeURL)
	}
	if len(paths) < 20 {
		t.Fatalf("documents: %q", paths)
	}
	return paths
}

// TestOpenAPIFromMemory checks that the gateway serves kube-apiserver's OpenAPI documents, and
// requests each of them only once per representation.
func TestOpenAPIFromMemory(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 5*time.Minute)
	g := startGateway(t)
	up, gw := direct(t, as(realkube.Alice)), through(t, g, as(realkube.Alice))
	type form struct{ accept, encoding string }
	forms := []form{{typeJSON, ""}, {typeJSON, "gzip"}, {"application/com.github.proto-openapi.spec.v2@v1.0+protobuf", ""}, {"application/com.github.proto-openapi.spec.v3.v1.0+protobuf", "gzip"}}
	compare := func() {
		t.Helper()
		for _, path := range openAPIPaths(ctx, t, up) {
			for _, f := range forms {
				from := func(c *client) func() response {
					return func() response { return document(ctx, t, c, path, f.accept, f.encoding) }
				}
				// Other tests create definitions concurrently.
				if want, got, same := steady.Compare(from(up), from(gw), sameDocument); !same {
					t.Errorf("%s as %v: %d %v with %d bytes, want %d %v with %d", path, f, got.status, got.header, len(got.body), want.status, want.header, len(want.body))
				}
			}
		}
	}
	compare()
	counts := func() (fromMemory, bytes float64) {
		m, err := g.Metrics(ctx)
		must(t, err)
		return m.Sum("kubeweir_requests_total", map[string]string{"source": "revalidated"}), m.Sum("kubeweir_openapi_bytes", nil)
	}
	before, bytes := counts()
	compare()
	eventually(ctx, t, waitTimeout, func() error {
		if after, _ := counts(); after-before < 40 {
			return fmt.Errorf("only %v documents were served from memory", after-before)
		}
		return nil
	})
	if bytes < 1<<20 {
		t.Errorf("the cached documents have %v bytes", bytes)
	}

	// The gateway does not serve cached documents to a client that the cluster rejects.
	for name, who := range map[string]identity{"nobody": {}, "a token that is not good": {token: "wrong"}} {
		want, got := direct(t, who).get(ctx, t, "/openapi/v2", typeJSON), through(t, g, who).get(ctx, t, "/openapi/v2", typeJSON)
		if got.status < 400 || want.status < 400 {
			t.Errorf("%s: %v, kube-apiserver: %v", name, got, want)
		}
	}
	for _, path := range []string{"/openapi/v3/api/v1?hash=old", "/openapi/v3/apis/none.example.com/v1", "/openapi/v4"} {
		want, got := document(ctx, t, up, path, typeJSON, ""), document(ctx, t, gw, path, typeJSON, "")
		if got.status != want.status || got.header.Get("Location") != want.header.Get("Location") {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	// A client that sends the ETag of a document gets a 304.
	etag := up.get(ctx, t, "/openapi/v2", typeJSON).header.Get("Etag")
	if a := gw.with("If-None-Match", etag).get(ctx, t, "/openapi/v2", typeJSON); a.status != http.StatusNotModified || a.body != "" {
		t.Errorf("with its ETag: %v", a)
	}

	// A new definition appears in the gateway's documents as soon as in kube-apiserver's.
	const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"docs.openapi.example.com"},"spec":{"group":"openapi.example.com","scope":"Namespaced",` +
		`"names":{"kind":"Doc","plural":"docs"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","description":"A doc of TestOpenAPIFromMemory."}}}]}}`
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	admin := direct(t, identity{token: kube.AdminToken()})
	a, err := admin.send(ctx, request{method: http.MethodPost, path: definitions, typ: typeJSON, body: definition})
	must(t, err)
	if a.status != http.StatusCreated {
		t.Fatal(a)
	}
	t.Cleanup(func() {
		_, _ = admin.send(context.Background(), request{method: http.MethodDelete, path: definitions + "/docs.openapi.example.com"})
	})
	for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/openapi.example.com/v1"} {
		has := func(c *client) bool {
			return strings.Contains(c.get(ctx, t, path, typeJSON).body, "openapi.example.com")
		}
		eventually(ctx, t, waitTimeout, func() error {
			if !has(up) {
				return fmt.Errorf("kube-apiserver's %s lacks the definition", path)
			}
			return nil
		})
		if !has(gw) {
			t.Errorf("%s lacks the definition", path)
		}
	}
}

func sameDocument(a, b response) bool {
	for _, name := range []string{"Content-Type", "Content-Encoding", "Etag", "Cache-Control", "Vary"} {
		if !slices.Equal(a.header.Values(name), b.header.Values(name)) {
			return false
		}
	}
	return a.status == b.status && a.body == b.body
}

// document gets a document without decompression by the transport, follows redirects, and
// decompresses it.
func document(ctx context.Context, t *testing.T, c *client, path, accept, encoding string) response {
	t.Helper()
	plain := *c
	plain.http = &http.Client{Transport: c.http.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if encoding == "" {
		encoding = "identity"
	}
	a := plain.with("Accept-Encoding", encoding).get(ctx, t, path, accept)
	if a.header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(strings.NewReader(a.body))
		must(t, err)
		b, err := io.ReadAll(z)
		must(t, err)
		a.body = string(b)
	}
	return a
}
