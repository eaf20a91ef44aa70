package proxy

import (
	"sync/atomic"

	"github.com/kubeweir/kubeweir/internal/api"
)

// gauge bounds how many of something are under way. max <= 0 means unbounded.
// It is safe for concurrent use.
type gauge struct {
	now atomic.Int64
	max int64
}

// acquire takes a place, or reports that there is none.
func (g *gauge) acquire() bool {
	if n := g.now.Add(1); g.max > 0 && n > g.max {
		g.now.Add(-1)
		return false
	}
	return true
}

func (g *gauge) release() { g.now.Add(-1) }

// overloaded is kube-apiserver's answer over its limits
// (k8s.io/apiserver/pkg/server/filters/maxinflight.go): plain text, retryable.
func overloaded() *api.Response {
	return &api.Response{
		Status: 429,
		Header: api.Header{
			{Name: "Content-Type", Value: "text/plain; charset=utf-8"},
			{Name: "Retry-After", Value: "1"},
			{Name: "X-Content-Type-Options", Value: "nosniff"},
		},
		Body: []byte("Too many requests, please try again later.\n"),
	}
}
