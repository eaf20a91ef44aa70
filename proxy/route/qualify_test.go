package route

import (
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
)

func TestInScope(t *testing.T) {
	pods, nodes, widgets := &source.Resource{Namespaced: true}, &source.Resource{}, &source.Resource{Namespaced: true, Custom: true}
	for _, c := range []struct {
		path string
		res  *source.Resource
		want bool
	}{
		{"/api/v1/pods", pods, true}, {"/api/v1/namespaces/a/pods", pods, true}, {"/api/v1/namespaces/a/pods/p", pods, true}, {"/api/v1/pods/p", pods, false},
		{"/api/v1/nodes", nodes, true}, {"/api/v1/nodes/n", nodes, true}, {"/api/v1/namespaces/a/nodes", nodes, false}, {"/api/v1/namespaces/a/nodes/n", nodes, false},
		{"/api/v1/namespaces", nodes, true}, {"/api/v1/namespaces/a", nodes, true}, {"/api/v1/namespaces?fieldSelector=metadata.name=a", nodes, true},
		{"/api/v1/watch/pods", pods, true}, {"/api/v1/watch/namespaces/a/pods/p", pods, true}, {"/api/v1/watch/pods/p", pods, false},
		{"/apis/a.example.com/v1/watch/widgets/w", widgets, true}, {"/apis/a.example.com/v1/widgets/w", widgets, false},
		{"/api/v1/watch/namespaces/a/nodes/n", nodes, false}, {"/api/v1/watch/nodes/n", nodes, true}, {"/api/v1/watch/namespaces/a", nodes, true}, {"/api/v1/watch/namespaces", nodes, true},
		{"/apis/example.com/v1/namespaces", nodes, false}, {"/apis/example.com/v1/namespaces/a", pods, false},
	} {
		path, query, _ := strings.Cut(c.path, "?")
		x := (&api.Request{Method: "GET", Path: path, RawPath: path, RawQuery: query, Proto: "HTTP/1.1"}).Info()
		if got := x.Exact && inScope(x, c.res); got != c.want {
			t.Errorf("%s: %v", c.path, got)
		}
	}
}
