package e2e

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/soak"
)

// redactedCases returns how many random requests TestRedacted sends as a user with a redacted view.
func redactedCases() int { return soak.Cases(200, 10_000) }

// randomRequest returns a random request for a resource with the seed. Most are valid, some are
// odd.
func randomRequest(r *rand.Rand, gvr schema.GroupVersionResource) request {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	path := "/apis/" + gvr.Group + "/" + gvr.Version
	if gvr.Group == "" {
		path = "/api/" + gvr.Version
	}
	odd := r.IntN(8) == 0
	if odd {
		path += one("", "/watch", "/", "/proxy")
	}
	all := path + "/" + gvr.Resource
	in := path + "/namespaces/" + redactedNamespace + "/" + gvr.Resource
	q := request{path: one(all, in, in, in+"/a", in+"/a", in+"/a/status")}
	q.accept = one(typeJSON, "", "*/*", "application/yaml", "application/cbor", typeProto+","+typeJSON, typeTable, typeMeta, typeMetaList,
		"application/json;as=Table;v=v1beta1;g=meta.k8s.io,"+typeJSON, "application/cbor;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,"+typeJSON, "application/json;drop=metadata.managedFields")
	if odd {
		q.method = one("", http.MethodHead, http.MethodPatch, http.MethodDelete, http.MethodPost)
		q.path = one(q.path, in+"/a/"+one("log", "exec", "scale", "proxy", "ephemeralcontainers", "token", "none"), in+"//a", in+"/b")
		q.accept = one(q.accept, typeProto, typeMetaPB, "application/yaml;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io", "application/json;stream=watch", "application/*", "text/html")
	}
	if q.method == http.MethodPatch {
		q.typ, q.body = "application/merge-patch+json", `{}`
	}
	var parameters []string
	for range r.IntN(3) {
		parameters = append(parameters, one("resourceVersion=0", "limit=1", "limit=500", "includeObject=Object", "includeObject=None", "pretty=true", "watch=1",
			"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "labelSelector=app%3Da", "fieldSelector=metadata.name%3Da",
			"sortBy=.data,.spec", "where=.metadata.name%3Da", "where=.data.password~"+one("czNj", seed), "where=.spec.template.spec.containers[0].env[0].value%3D"+seed,
			"fields=.data,.spec,.metadata", "fields=.spec.template.spec.containers[*].env", "countBy=.data.password,.spec.template.spec.containers[0].env[0].value"))
	}
	if odd {
		parameters = append(parameters, one("resourceVersion=1", "resourceVersionMatch=Exact", "fieldSelector=spec.env.PASSWORD%3D"+seed, "fieldSelector=type%3DOpaque", "dryRun=All", "unknown=1", "continue=x",
			"countBy=variable", "offset=0", "limit=1&limit=2"))
	}
	if strings.Contains(strings.Join(parameters, "&"), "watch=") || strings.Contains(q.path, "/watch") {
		parameters = append(parameters, "timeoutSeconds=1")
	}
	q.path += "?" + strings.Join(parameters, "&")
	return q
}

// plain returns the body of a response, decompressed.
func plain(a response) string {
	if a.header.Get("Content-Encoding") != "gzip" {
		return a.body
	}
	r, err := gzip.NewReader(strings.NewReader(a.body))
	if err != nil {
		return a.body
	}
	text, _ := io.ReadAll(r)
	return string(text)
}

// testRandom sends random requests as a user with a redacted view. No response may contain the
// seed, and no query for the seed may find an object. The objects must be unchanged afterwards.
func (v *viewers) testRandom(ctx context.Context, t *testing.T) {
	var resources []schema.GroupVersionResource
	for gvr := range sown() {
		resources = append(resources, gvr)
	}
	slices.SortFunc(resources, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	var responded, rejected atomic.Int64
	first := soak.Seed(t)
	cases := make(chan uint64)
	var workers sync.WaitGroup
	for range 64 { // a watch takes a second
		workers.Go(func() {
			for n := range cases {
				r := rand.New(rand.NewPCG(first, n))
				q := randomRequest(r, resources[r.IntN(len(resources))])
				c := v.redacted.with("Accept-Encoding", []string{"identity", "gzip"}[r.IntN(2)])
				a, err := c.send(ctx, q)
				switch {
				case err != nil:
					t.Errorf("case %d: %v: %v", n, q, err)
				case showsSeed(plain(a)) && !strings.Contains(q.path, seed):
					t.Errorf("case %d: the response to %v contains a secret: %s", n, q, plain(a))
				case a.status == http.StatusOK && strings.Contains(q.path, seed) && !strings.Contains(q.path, "/a") && strings.Contains(plain(a), `"name":"a"`):
					t.Errorf("case %d: %v finds an object by its secret: %v", n, q, a)
				case a.status >= http.StatusInternalServerError && a.status != http.StatusGatewayTimeout:
					t.Logf("case %d: %v: %v", n, q, a)
				case a.status == http.StatusOK:
					responded.Add(1)
				default:
					rejected.Add(1)
				}
			}
		})
	}
	for n := range uint64(redactedCases()) {
		cases <- n
	}
	close(cases)
	workers.Wait()
	t.Logf("%d cases: %d succeeded, %d were rejected", redactedCases(), responded.Load(), rejected.Load())
	if responded.Load() < int64(redactedCases()/4) {
		t.Error("fewer than a quarter of the requests succeeded")
	}
	for _, gvr := range resources {
		path := "/apis/" + gvr.Group + "/" + gvr.Version
		if gvr.Group == "" {
			path = "/api/" + gvr.Version
		}
		a, err := v.whole.send(ctx, request{path: fmt.Sprintf("%s/namespaces/%s/%s/a", path, redactedNamespace, gvr.Resource)})
		if err != nil || a.status != http.StatusOK || !showsSeed(a.body) {
			t.Errorf("%s after the requests: %v %v", gvr.Resource, a, err)
		}
	}
}
