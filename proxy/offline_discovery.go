package proxy

import (
	"context"
	"time"

	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/response"

	"github.com/kubeweir/kubeweir/internal/api"
)

// offlineDiscovery responds to discovery requests from the upstream's last responses while it is
// unreachable. If it returns nil, the request must be forwarded.
func (g *Gateway) offlineDiscovery(ctx context.Context, x *exchange) *api.Response {
	docs := g.Discovered()
	age := time.Since(docs.At)
	if docs.At.IsZero() || age > x.policy.Offline.TTL {
		return nil
	}
	body, contentType := discovery.Document(&docs, x.Request.Path, x.Request.Header.Get("Accept"))
	if body == nil {
		return nil
	}
	if rejection := g.permit(ctx, x); rejection != nil {
		return rejection
	}
	x.source = response.FromCache
	resp := &api.Response{Status: 200, Body: body, Header: api.Header{
		{Name: "Cache-Control", Value: api.CacheControl}, {Name: "Content-Type", Value: contentType}, {Name: "Vary", Value: "Accept"},
	}}
	g.markStale(resp, max(age, 1))
	return resp
}
