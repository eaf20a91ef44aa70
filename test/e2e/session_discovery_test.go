package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// sessionDefinition is a custom resource that is created while discovery documents are cached.
const sessionDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"trinkets.session.example.com"},
"spec":{"group":"session.example.com","scope":"Namespaced","names":{"plural":"trinkets","singular":"trinket","kind":"Trinket","listKind":"TrinketList"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`

// TestSessionDiscovery checks that in session mode the gateway serves discovery from memory, with
// the same bytes as kube-apiserver, in each representation and to each user. A new resource is
// found as soon as kube-apiserver serves it.
func TestSessionDiscovery(t *testing.T) {
	ctx := deadline(t, time.Minute)
	g := startGateway(t, "--consistency=session")
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	var requests []request
	for _, path := range []string{
		"/version", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/session.example.com", "/apis/session.example.com/v1",
		"/apis/session.example.com/v1/trinkets?limit=10", "/apis/session.example.com/v1/namespaces/default/trinkets/one", "/apis/apps/v9",
	} {
		for _, accept := range []string{"*/*", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/html"} {
			requests = append(requests, request{path: path, accept: accept})
		}
	}
	for _, path := range []string{"/api", "/apis"} {
		requests = append(requests, request{path: path, accept: aggregated}, request{path: path, accept: aggregated + ",application/json"})
	}
	for _, user := range []string{realkube.Admin, realkube.Jane} {
		real, ours := direct(t, as(user)), through(t, g, as(user))
		for _, r := range requests {
			// Definitions of other tests may still be terminating.
			eventually(ctx, t, waitTimeout, func() error {
				want, err := real.send(ctx, r)
				must(t, err)
				for range 2 {
					got, err := ours.send(ctx, r)
					must(t, err)
					if got.status != want.status || got.body != want.body || described(got) != described(want) {
						return fmt.Errorf("%s as %s: %d %s %.300s\nwant %d %s %.300s", r, user, got.status, described(got), got.body, want.status, described(want), want.body)
					}
				}
				return nil
			})
		}
	}
	if cached, forwarded := readsFrom(ctx, t, g, "cached"), readsFrom(ctx, t, g, "forwarded", "collapsed"); cached == 0 {
		t.Errorf("none of %v responses were served from memory", cached+forwarded)
	}

	admin := through(t, g, as(realkube.Admin))
	made, err := admin.send(ctx, request{method: http.MethodPost, path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", typ: typeJSON, body: sessionDefinition})
	must(t, err)
	if made.status != http.StatusCreated {
		t.Fatal(made)
	}
	real := direct(t, as(realkube.Admin))
	t.Cleanup(func() {
		_, err := real.send(context.WithoutCancel(ctx), request{method: http.MethodDelete, path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trinkets.session.example.com"})
		must(t, err)
	})
	list := request{path: "/apis/session.example.com/v1", accept: "application/json"}
	eventually(ctx, t, waitTimeout, func() error {
		want, err := real.send(ctx, list)
		must(t, err)
		got, err := admin.send(ctx, list)
		must(t, err)
		switch {
		case want.status != http.StatusOK:
			return fmt.Errorf("kube-apiserver: %s", want)
		case got.status != http.StatusOK || !json.Valid([]byte(got.body)) || !strings.Contains(got.body, "trinkets"):
			t.Errorf("kube-apiserver already serves the resource, the gateway does not: %s", got)
		}
		return nil
	})
}

// described returns the headers that describe the representation.
func described(a response) string {
	var text strings.Builder
	for _, name := range []string{"Content-Type", "ETag", "Vary", "Cache-Control", "X-Content-Type-Options", "Content-Encoding"} {
		fmt.Fprintf(&text, "%s: %q ", name, a.header.Values(name))
	}
	return text.String()
}
