package api

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// libraryRequestInfo is the oracle: kube-apiserver's own code.
func libraryRequestInfo(method, path, query string) (RequestInfo, error) {
	factory := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := factory.NewRequestInfo(&http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}})
	return RequestInfo{
		IsResourceRequest: info.IsResourceRequest,
		Path:              info.Path, Verb: info.Verb,
		APIPrefix: info.APIPrefix, APIGroup: info.APIGroup, APIVersion: info.APIVersion,
		Namespace: info.Namespace, Resource: info.Resource, Subresource: info.Subresource, Name: info.Name,
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
	exact := got.Exact
	// Other tests check the fields that the library does not have.
	got.Exact, got.NamedByPath, got.ShardSelector, got.Options, got.IncludeObject, got.pretty = false, false, "", ListOptions{}, "", ""
	if !exact && strings.Count(query, ",") >= maxSelectorTerms {
		got.Name = want.Name // not compared
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s %s?%s:\n got %+v\nwant %+v", method, path, query, got, want)
	}
	unparsed := got.IsResourceRequest && got.Resource == "" && (strings.HasSuffix(strings.TrimRight(path, "/"), "/watch") || strings.HasSuffix(strings.TrimRight(path, "/"), "/proxy"))
	if (err != nil) != unparsed || exact && err != nil {
		t.Errorf("%s %s?%s: library error %v, got %+v", method, path, query, err, got)
	}
}

// TestExact makes sure that the cache only serves requests that every server reads the same way.
func TestExact(t *testing.T) {
	exact := []string{
		"/api/v1/pods", "/api/v1/namespaces", "/api/v1/namespaces/a", "/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/p",
		"/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/a/deployments/d", "/api/v1/nodes/ip-10-0-0-1.example.com",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:controller:job-controller", "/apis/rbac.authorization.k8s.io/v1/clusterroles/a@b,c=d",
		"/api/v1/namespaces/%61/pods/web%2D0", "/api/v1/namespaces/a/pods/...", "/api/v1/namespaces/a/pods/.a", "/api/v1/pods?",
		"/api/v1/pods?resourceVersion=0&limit=500", "/api/v1/pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=5&resourceVersion=7&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		"/api/v1/pods?labelSelector=a+in+%28b%2Cc%29&fieldSelector=spec.nodeName%3Dn&", "/api/v1/pods?timeout=32s&pretty=true&includeObject=Object",
		"/api/v1/pods?watch=1&timeout=x", "/api/v1/namespaces/a/pods/p?resourceVersion=abc&watch=1", "/api/v1/pods?labelSelector=" + strings.Repeat("a,", 99) + "a",
		"/api/v1/pods?limit=5" + strings.Repeat("&", 60), "/api/v1/pods?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
		"/api/v1/watch/pods", "/api/v1/watch/namespaces/a/pods?resourceVersion=5", "/api/v1/watch/namespaces/a/pods/p?allowWatchBookmarks=true", "/api/v1/watch/namespaces/a",
		"/apis/apps/v1/watch/namespaces/a/deployments/d?fieldSelector=metadata.name%3Dd,spec.x%3Dy", "/api/v1/watch/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		"/api/v1/watch/pods?resourceVersion=5&resourceVersionMatch=Exact", "/api/v1/watch/pods?timeout=x",
		"/api/v1/pods?timeout=10ms", "/api/v1/pods?timeout=0", "/api/v1/namespaces/a/pods/p?timeout=-1s", "/api/v1/pods?watch=1&timeout=1ns",
		"/api/v1/pods?shardSelector=" + strings.Repeat("x", maxShardSelector),
	}
	other := []string{
		"/", "", "/api", "/api/v1", "/apis/apps/v1", "/version", "*",
		"/api/v1/pods?shardSelector=" + strings.Repeat("x", maxShardSelector+1), "/api/v1/watch/pods?shardSelector=" + strings.Repeat("x", maxShardSelector+1),
		"/api/v1/namespaces/a/namespaces", "/api/v1/namespaces/a/namespaces/a", "/api/v1/namespaces/a/status", "/api/v1/namespaces/a/status/pods",
		"/api/v1/namespaces/a/pods/p/log", "/api/v1/namespaces/a/pods/p//log", "/api/v1/pods/p/", "/api/v1/pods/", "//api/v1/pods", "/api//v1/pods",
		"/api/v1/namespaces//pods", "/api/v1/namespaces/../pods", "/api/v1/namespaces/./pods", "/api/v1/pods/.", "/api/v1/pods/..", "/api/v1/pods/%2e%2E",
		"/api/v1/watch/pods/", "/api/v1/watch//pods", "/api/v1/watch/namespaces/a/namespaces", "/api/v1/watch/namespaces/a/status", "/api/v1/watch/namespaces/a/pods/p/log", "/api/v1/watch",
		"/api/v1/watch/namespaces/a/pods/p?fieldSelector=metadata.name%3Dq", "/api/v1/watch/namespaces/a/pods/p?fieldSelector=spec.nodeName%3Dn",
		"/api/v1/watch/pods?sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "/api/v1/watch/pods?watch=1&resourceVersionMatch=Exact", "/api/v1/watch/pods?limit=x",
		"/api/v1/proxy/nodes/n", "/api/v1/namespaces/a%2Fpods", "/api/v1/namespaces/a%2fpods/p",
		"/api/v1/pods/a%252Fb", "/api/v1/pods/a%20b", "/api/v1/pods/a;b", "/api/v1/pods/a%3Bb", "/api/v1/pods/a%5Cb", "/api/v1/pods/%00", "/api/v1/pods/\u00e4", "/api/v1/pods/%FF", "/api/v1/pods/%23", "/api/v1/pods/a%3Fb",
		"/api/v1/pods?x=1", "/api/v1/pods?export=true", "/api/v1/pods?Watch=1", "/api/v1/pods?limit=1&limit=1", "/api/v1/pods?labelSelector=a&label%53elector=b",
		"/api/v1/pods?limit=1;watch=1", "/api/v1/pods?limit=%zz", "/api/v1/pods?limit=x", "/api/v1/pods?labelSelector=%21%21", "/api/v1/pods?fieldSelector=a",
		"/api/v1/pods?limit=1#", "/api/v1/pods?labelSelector=a%00", "/api/v1/pods?fieldSelector=spec.nodeName%3D%FF", "/api/v1/pods?=", "/api/v1/pods??watch=1",
		"/api/v1/pods?timeout=x", "/api/v1/namespaces/a/pods/p?timeout=1", "/api/v1/pods?timeout=1ns", "/api/v1/namespaces/a/pods/p?timeout=9.9ms", "/api/v1/pods?resourceVersionMatch=Exact", "/api/v1/pods?watch=1&resourceVersionMatch=Exact",
		"/api/v1/pods?labelSelector=" + strings.Repeat("a,", 100) + "a", "/api/v1/pods?fieldSelector=" + strings.Repeat("a%3Db,", 100) + "a%3Db",
		"/api/v1/pods?limit=5" + strings.Repeat("&", 64), "/api/v1/pods?fieldSelector=spec.nodeName%3Dn" + strings.Repeat("&a", 10_001),
	}
	info := func(method, target string) *RequestInfo {
		raw, query, _ := strings.Cut(target, "?")
		path, err := url.PathUnescape(raw)
		if err != nil {
			t.Fatal(err)
		}
		return (&Request{Method: method, Path: path, RawPath: raw, RawQuery: query}).Info()
	}
	for _, target := range exact {
		if !info("GET", target).Exact {
			t.Errorf("%.200s is not exact", target)
		}
		for _, method := range []string{"HEAD", "POST", "DELETE", "get", ""} {
			if info(method, target).Exact {
				t.Errorf("%s %.200s is exact", method, target)
			}
		}
	}
	for _, target := range other {
		if info("GET", target).Exact {
			t.Errorf("%.200s is exact", target)
		}
	}
}

// TestPathWatch: the parameters of a watch with the verb in its path are parsed like a list's,
// unless they contain watch as well.
func TestPathWatch(t *testing.T) {
	for _, test := range []struct {
		target              string
		unmarked, initial   bool
		field, name, inPath string
	}{
		{target: "/api/v1/watch/pods", unmarked: true},
		{target: "/api/v1/watch/pods?resourceVersion=0&resourceVersionMatch=NotOlderThan", unmarked: true},
		{target: "/api/v1/watch/pods?resourceVersion=00&watch=1", unmarked: true},
		{target: "/api/v1/pods?resourceVersion=00&watch=1", unmarked: true},
		{target: "/api/v1/pods?resourceVersion=00&watch=1&allowWatchBookmarks=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"},
		{target: "/api/v1/watch/pods?resourceVersion=5"},
		{target: "/api/v1/watch/pods?watch=1", initial: true},
		{target: "/api/v1/watch/pods?watch=0", unmarked: true},
		{target: "/api/v1/watch/pods?fieldSelector=metadata.name%3Dp", unmarked: true, field: "metadata.name=p"},
		{target: "/api/v1/watch/namespaces/a/pods/p?resourceVersion=5", field: "metadata.name=p", name: "p", inPath: "p"},
		{target: "/api/v1/watch/namespaces/a", unmarked: true, field: "metadata.name=a", name: "a", inPath: "a"},
		{target: "/api/v1/watch/namespaces/a/pods/p?fieldSelector=spec.x%21%3Dy,metadata.name%3Dp", unmarked: true, field: "metadata.name=p,spec.x!=y", name: "p", inPath: "p"},
	} {
		path, query, _ := strings.Cut(test.target, "?")
		info := ParseRequestInfo("GET", path, query)
		o := info.Options
		if !info.Exact || info.Verb != "watch" || !o.Watch || o.UnmarkedStart != test.unmarked || o.SendInitialEvents != test.initial ||
			o.FieldSelector.String() != test.field || info.Name != test.name || info.NamedByPath != (test.inPath != "") || info.FieldSelector != "" && strings.Contains(path, "/watch/") {
			t.Errorf("%s: %+v", test.target, info)
		}
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

// TestCoalesce: the parameter is valid once, on watches, which stay exact. For all other requests
// it is unknown.
func TestCoalesce(t *testing.T) {
	for _, test := range []struct {
		method, path, query string
		exact               bool
		value               string // "-" for none
	}{
		{"GET", "/api/v1/pods", "watch=1&coalesce=500ms", true, "500ms"},
		{"GET", "/api/v1/pods", "watch=1&coalesce=", true, ""},
		{"GET", "/api/v1/watch/pods", "coalesce=x", true, "x"},
		{"GET", "/api/v1/pods", "watch=1&coalesce=1s&coalesce=1s", false, "1s"},
		{"GET", "/api/v1/pods", "watch=1&coalesce=%C3%A9", false, "é"},
		{"GET", "/api/v1/pods", "watch=1&coalesce=1s;2s", false, "-"},
		{"GET", "/api/v1/pods", "coalesce=1s", false, "-"},
		{"GET", "/api/v1/pods", "watch=0&coalesce=1s", false, "-"},
		{"GET", "/api/v1/namespaces/a/pods/b", "coalesce=1s", false, "-"},
		{"DELETE", "/api/v1/namespaces/a/pods", "coalesce=1s", false, "-"},
	} {
		info := ParseRequestInfo(test.method, test.path, test.query)
		value := "-"
		if info.Coalesce != nil {
			value = *info.Coalesce
		}
		if info.Exact != test.exact || value != test.value {
			t.Errorf("%s %s?%s: exact %t, %q", test.method, test.path, test.query, info.Exact, value)
		}
	}
}
