package proxy

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// TestQueries: lists with a query are answered from the cache, or refused with what to do; they are never forwarded, for
// the upstream would answer as if there were no query.
func TestQueries(t *testing.T) {
	const pods, sorted = "GET /api/v1/pods?", "sortBy=-.metadata.name&limit=1"
	kubeToken := api.ContinueToken{ResourceVersion: 5, Start: "default/a\x00"}.Encode()
	for _, c := range []struct {
		name, line, header string
		status             int
		message            string
	}{
		{name: "any version", line: pods + "resourceVersion=0&" + sorted, status: 200, message: `"remainingItemCount":2`},
		{name: "most recent", line: pods + sorted, status: 200, message: `"name":"c"`},
		{name: "namespace", line: "GET /api/v1/namespaces/default/pods?resourceVersion=0&where=.metadata.name%3Db", status: 200, message: `"name":"b"`},
		{name: "not older than", line: pods + "resourceVersion=1&resourceVersionMatch=NotOlderThan&" + sorted, status: 200, message: `"name":"c"`},
		{name: "counts", line: pods + "resourceVersion=0&limit=0&countBy=.metadata.namespace", status: 200, message: `"values":{"default":3}}]}`},
		{name: "fields", line: pods + "resourceVersion=0&limit=1&fields=.metadata.name", status: 200, message: `"items":[{"metadata":{"name":"a"}}]`},

		{name: "without rights", line: pods + "resourceVersion=0&sortBy=x", header: "Authorization: Bearer nobody", status: 403},
		{name: "without rights, not answered", line: "GET /api/v1/nothings?" + sorted, header: "Authorization: Bearer nobody", status: 403},
		{name: "bad path", line: pods + "resourceVersion=0&sortBy=x", status: 400, message: `parameter sortBy: the Table of pods has no column \"x\": use a path, such as .metadata.name, or one of the columns Name, Created At`},
		{name: "bad condition", line: pods + "where=.a%3E%20x", status: 400, message: "parameter where: "},
		{name: "many values", line: pods + "where=.a%20in%20(" + strings.Repeat("a,", 300) + "a)", status: 400, message: "more than 256 values"},
		{name: "an age of a path", line: pods + "where=.a%3C1h", status: 400, message: "cannot be ordered"},
		{name: "bad offset", line: pods + "offset=x", status: 400, message: "parameter offset: "},
		{name: "empty", line: pods + "countBy=", status: 400, message: "parameter countBy: empty value"},
		{name: "twice", line: pods + "offset=1&offset=2", status: 400, message: "inexact"},
		{name: "unknown beside", line: pods + "resourceVersion=0&x=1&" + sorted, status: 400, message: "inexact"},
		{name: "invalid limit", line: pods + "limit=x&offset=1", status: 400, message: "inexact"},
		{name: "bad escape", line: pods + "where=.metadata.name~50%", status: 400, message: "inexact"},
		{name: "semicolon", line: pods + "resourceVersion=0&where=.metadata.name=a;b", status: 400, message: "inexact"},
		{name: "not in ASCII", line: pods + "where=.metadata.name%3D%C3%A9", status: 400, message: "inexact"},
		{name: "another's token", line: pods + "sortBy=.metadata.name&continue=" + kubeToken, status: 400, message: "parameter continue: "},
		{name: "protobuf", line: pods + "resourceVersion=0&" + sorted, header: "Accept: application/vnd.kubernetes.protobuf", status: 200, message: "k8s\x00"},
		{name: "protobuf, most recent", line: pods + sorted, header: "Accept: application/vnd.kubernetes.protobuf", status: 200, message: "k8s\x00"},
		{name: "fields in protobuf", line: pods + "fields=.metadata.name&resourceVersion=0", header: "Accept: application/vnd.kubernetes.protobuf", status: 406, message: "parameter fields: "},
		{name: "fields in CBOR", line: pods + "fields=.metadata.name&resourceVersion=0", header: "Accept: application/cbor", status: 200, message: "Hmetadata\xa1DnameAa"},
		{name: "counts in CBOR", line: pods + "countBy=.metadata.namespace&limit=0&resourceVersion=0", header: "Accept: application/cbor", status: 200, message: "Gdefault\x03"},
		{name: "fields of metadata in CBOR", line: pods + "fields=.metadata.name&resourceVersion=0", header: "Accept: application/cbor;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", status: 406, message: "parameter fields: "},
		{name: "counts in protobuf", line: pods + "countBy=.metadata.name&resourceVersion=0", header: "Accept: application/vnd.kubernetes.protobuf", status: 406, message: "parameter countBy: "},
		{name: "HTML", line: pods + "resourceVersion=0&" + sorted, header: "Accept: text/html", status: 400, message: "(representation)"},
		{name: "not cached", line: "GET /api/v1/nothings?" + sorted, status: 400, message: "(unknown-resource): omit these parameters"},
		{name: "gone", line: pods + "resourceVersion=5&resourceVersionMatch=Exact&" + sorted, status: 410, message: "too old"},
		{name: "gone, by its limit", line: pods + "resourceVersion=5&" + sorted, status: 410, message: "too old"},
		{name: "future", line: pods + "resourceVersion=99999&offset=1", status: 504, message: "Too large resource version: 99999"},
		{name: "watch", line: pods + "watch=1&where=.a", status: 400, message: "are not supported for watches"},
		{name: "watch by path", line: "GET /api/v1/watch/pods?fields=.a", status: 400, message: "are not supported for watches"},
		{name: "deletion", line: "DELETE /api/v1/namespaces/default/pods?where=.status.phase%3DFailed", status: 400, message: "would delete all"},
		{name: "deletion, bad escape", line: "DELETE /api/v1/namespaces/default/pods?where=.status.phase=50%", status: 400, message: "would delete all"},
		{name: "deletion, semicolon", line: "DELETE /api/v1/namespaces/default/pods?%77here=.status.phase=a;b", status: 400, message: "would delete all"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newGatewayBench(t, nil)
				for _, name := range []string{"a", "b", "c"} {
					b.source.Create(cachetest.Pods, cachetest.Pod("default/"+name, ""))
				}
				b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool { return r.User != "nobody" }
				status, body, header := b.do(c.line, orElse(c.header, "X-Test: 1"))
				if status != c.status || !strings.Contains(body, c.message) {
					t.Errorf("%d %s", status, body)
				}
				if applied := header.Get(queryHeader) == "applied"; applied != (c.status == 200) {
					t.Errorf("%s: %q", queryHeader, header.Get(queryHeader))
				}
				if n := len(b.upstream.forwarded); n != 0 {
					t.Errorf("%d requests upstream", n)
				}
			})
		})
	}
}

// TestOthersParameters: what is no list of ours may have parameters of the same names.
func TestOthersParameters(t *testing.T) {
	b := newGatewayBench(t, nil)
	for _, line := range []string{
		"GET /api/v1/namespaces/default/pods/a?fields=.a", "HEAD /api/v1/pods?offset=1", "POST /api/v1/namespaces/default/pods?fields=a",
		"GET /api/v1/namespaces/default/services/a/proxy/list?offset=1&where=x", "GET /api/v1/namespaces/default/pods/a/log?offset=1",
		"GET /version?fields=a", "DELETE /api/v1/namespaces/default/pods/a?where=x", "GET /.well-known/openid-configuration", "GET /.well-known/kubeweir/x",
	} {
		if status, body, header := b.do(line, "X-Test: 1"); status != 200 || header.Has(queryHeader) || !strings.HasPrefix(line, "HEAD") && body != "upstream" {
			t.Errorf("%s: %d %s", line, status, body)
		}
	}
}

// TestQueriesOfAPIServices: the server of a group may have parameters of these names; the answer says that they are its own.
func TestQueriesOfAPIServices(t *testing.T) {
	b := newGatewayBench(t, uncachedPods(reason.Aggregated))
	for _, query := range []string{"offset=1", "offset=1&own=x"} {
		status, body, header := b.do("GET /api/v1/pods?"+query, "X-Test: 1")
		if status != 200 || body != "upstream" || !strings.Contains(header.Get("Warning"), "were left to the API server of this resource") {
			t.Errorf("%d %s %v", status, body, header)
		}
	}
}
