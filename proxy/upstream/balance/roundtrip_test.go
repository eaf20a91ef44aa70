package balance

import (
	"net/url"
	"testing"
)

// TestMayBeStale: only what any version will do for.
func TestMayBeStale(t *testing.T) {
	for query, want := range map[string]bool{
		"": false, "resourceVersion=0": true, "watch=1&resourceVersion=0": true, "resourceVersion=01": false,
		"xresourceVersion=0": false, "resourceVersion=5": false,
	} {
		if got := mayBeStale(query); got != want {
			t.Errorf("%q: %v", query, got)
		}
	}
	for path, want := range map[string]bool{
		"/api/v1/namespaces/x/pods/y/proxy": true, "/api/v1/namespaces/x/pods/y/proxy/z": true, "/api/v1/namespaces/x/pods/proxy-1": false,
		"/api/v1/namespaces/x/pods/y/%70roxy/": true,
	} {
		if got := isProxied(&url.URL{Opaque: path}); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
}
