package proxy

import (
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/proxy/authz/rbac"
)

// BenchmarkVisible lists what is in 1,000 of 5,000 namespaces, of 6 pods: from memory; after a change of RBAC objects that
// concerns somebody else; and when each namespace has to be confirmed, by an upstream that answers at once.
func BenchmarkVisible(b *testing.B) {
	bench := newVisibleBench(b, nil)
	for i := range 5000 {
		namespace := fmt.Sprintf("team-%d", i)
		for n := range 6 {
			bench.source.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("%s/pod-%d", namespace, n), "node"))
		}
		subject := jane
		if i%5 > 0 {
			subject.Name = "joe"
		}
		one := binding(namespace, "view", subject)
		bench.source.Create(rbac.GroupVersionResources()[1], one)
	}
	bench.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool { return r.ResourceAttributes.Namespace != "" }
	list := func(b *testing.B, query string) {
		if status, body, _ := bench.do("GET /api/v1/pods?resourceVersion=0"+query, asJane); status != 200 {
			b.Fatal(status, body)
		}
	}
	n := 0
	for _, c := range []struct {
		name, query string
		before      func()
	}{
		{name: "from memory", before: func() {}},
		{name: "a page of 100 from memory", query: "&resourceVersionMatch=NotOlderThan&sortBy=.metadata.name&limit=100", before: func() {}},
		{name: "after a change", before: func() {
			n++
			bench.source.Create(rbac.GroupVersionResources()[1], binding(fmt.Sprintf("other-%d", n), "view"))
			bench.gateway.Authorizer.Invalidate()
		}},
		{name: "confirmed", before: bench.gateway.forgetVisible},
	} {
		b.Run(c.name, func(b *testing.B) {
			list(b, c.query)
			for b.Loop() {
				b.StopTimer()
				c.before()
				b.StartTimer()
				list(b, c.query)
			}
		})
	}
}

// forgetVisible begins anew.
func (g *Gateway) forgetVisible() {
	g.visible = newVisible(&g.Options)
	g.Authorizer.Invalidate()
}
