package api

import (
	"net/http"
	"net/url"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// libraryRequestInfo is the oracle: what kube-apiserver's own code says.
func libraryRequestInfo(method, path, query string) (RequestInfo, error) {
	factory := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := factory.NewRequestInfo(&http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}})
	return RequestInfo{
		IsResourceRequest: info.IsResourceRequest,
		Path:              info.Path, Verb: info.Verb,
		APIPrefix: info.APIPrefix, APIGroup: info.APIGroup, APIVersion: info.APIVersion,
		Namespace: info.Namespace, Resource: info.Resource, Subresource: info.Subresource, Name: info.Name,
		Parts:         info.Parts,
		FieldSelector: info.FieldSelector, LabelSelector: info.LabelSelector,
	}, err
}

var requestPaths = []string{
	"", "/", "//", "/healthz", "/readyz/etcd", "/metrics", "/version", "/openapi/v3/apis/apps/v1",
	"/api", "/api/", "/api/v1", "/api/v1/", "/apis", "/apis/apps", "/apis/apps/v1", "/apis/apps/v1/",
	"/api/v1/pods", "/api/v1/pods/", "//api/v1/pods", "/api//v1/pods", "/api/v1/pods/x", "/api/v1/nodes/n/status", "/api/v1/nodes/n/proxy/a/b",
	"/api/v1/namespaces", "/api/v1/namespaces/", "/api/v1/namespaces/a", "/api/v1/namespaces/a/status", "/api/v1/namespaces/a/finalize",
	"/api/v1/namespaces/a/finalize/b", "/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/", "/api/v1/namespaces/a/pods/p",
	"/api/v1/namespaces/a/pods/p/log", "/api/v1/namespaces/a/pods/p/proxy/x/y", "/api/v1/namespaces//pods", "/api/v1/namespaces//pods/p",
	"/api/v1/watch", "/api/v1/watch/pods", "/api/v1/watch/pods/x", "/api/v1/watch/namespaces/a/pods", "/api/v1/watch/namespaces/a/pods/p",
	"/api/v1/watch/namespaces", "/api/v1/watch/namespaces/a", "/api/v1/watch/namespaces/a/status",
	"/api/v1/proxy", "/api/v1/proxy/pods/p/log", "/api/v1/proxy/namespaces/a/pods/p/x",
	"/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/a/deployments/d/scale", "/apis/apps/v1/watch", "/apis/apps/v1/watch/deployments",
	"/apis/ex.com/v1/widgets/w", "/apis/ex.com/v1/namespaces/a/status", "/APIs/apps/v1/deployments", "/foo/v1/pods",
	"/api/v1/pods/a%2Fb", "/api/v1/namespaces/a/..",
}

var requestQueries = []string{
	"", "watch", "watch=", "watch=1", "watch=true", "watch=false", "watch=FALSE", "watch=0", "watch=banana", "watch=0&watch=1", "%77atch=1", "%77atch=0",
	"fieldSelector=metadata.name%3Dx", "fieldSelector=metadata.name=x", "fieldSelector=metadata.name%21%3Dx", "fieldSelector=metadata.name%3Dx,spec.nodeName%3Dn",
	"fieldSelector=metadata.name%3Da%252Fb", "fieldSelector=metadata.name%3D..", "fieldSelector=bad", "fieldSelector=bad&watch=1", "fieldSelector=",
	"watch=1&fieldSelector=metadata.name%3Dx&labelSelector=a%3Db", "labelSelector=a+in+%28b%29", "labelSelector=%21%21", "labelSelector=%21%21&watch=1",
	"limit=abc&watch=1", "limit=abc&fieldSelector=metadata.name%3Dx", "limit=500&resourceVersion=0", "timeoutSeconds=x&watch=0",
	"watch=1;a=b", "a=%zz&watch=true", "&&watch=true", "=x&watch=1", "field%53elector=metadata.name%3Dx",
	"labelSelector=a&labelSelector=b&fieldSelector=metadata.name%3Dx&fieldSelector=metadata.name%3Dy",
}

func TestParseRequestInfoMatchesLibrary(t *testing.T) {
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "get", "Foo"}
	for _, method := range methods {
		for _, path := range requestPaths {
			for _, query := range requestQueries {
				checkRequestInfo(t, method, path, query)
			}
		}
	}
}

func checkRequestInfo(t *testing.T, method, path, query string) {
	t.Helper()
	want, err := libraryRequestInfo(method, path, query)
	got := ParseRequestInfo(method, path, query)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s %s?%s:\n got %+v\nwant %+v", method, path, query, got, want)
	}
	if (err != nil) != (got.IsResourceRequest && got.Resource == "" && len(got.Parts) == 0) {
		t.Errorf("%s %s?%s: library error %v, got %+v", method, path, query, err, got)
	}
}

func FuzzParseRequestInfo(f *testing.F) {
	for _, path := range requestPaths {
		f.Add("GET", path, "watch=1")
	}
	for _, query := range requestQueries {
		f.Add("GET", "/api/v1/pods", query)
		f.Add("DELETE", "/apis/a/v1/namespaces/n/pods", query)
	}
	f.Fuzz(checkRequestInfo)
}

func BenchmarkParseRequestInfo(b *testing.B) {
	for _, bench := range []struct{ name, path, query string }{
		{"get", "/api/v1/namespaces/default/pods/web-0", "resourceVersion=0"},
		{"list", "/api/v1/pods", "resourceVersion=0&limit=500"},
		{"watch", "/api/v1/pods", "watch=true&resourceVersion=12345&allowWatchBookmarks=true&timeoutSeconds=500"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ParseRequestInfo("GET", bench.path, bench.query)
			}
		})
	}
}
