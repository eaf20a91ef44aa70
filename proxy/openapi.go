package proxy

import (
	"context"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/openapi"
	"github.com/kubeweir/kubeweir/proxy/response"
)

// openAPI serves an OpenAPI document from memory after the upstream has confirmed, with 304
// to the client's own request, that it is current. So the upstream authorizes every request
// and need not send, or compress, what has not changed. It returns nil for other requests.
func (g *Gateway) openAPI(ctx context.Context, x *exchange) *api.Response {
	r := x.Request
	key, ok := openapi.KeyOf(r, x.Pretty)
	if !ok {
		return nil
	}
	saved := g.memory.openAPIDocuments.Get(key)
	if saved != nil && g.isUnreachable() && x.AllowsOffline() && !x.Subject.UpstreamDecides {
		return g.offlineOpenAPI(ctx, x, saved)
	}
	if tag := r.Header.Get("If-None-Match"); tag != "" { // the client has a document itself
		resp := g.forward(ctx, x)
		if saved != nil && resp.Status == 304 && tag == saved.Header.Get("Etag") {
			saved.Confirm()
		}
		return resp
	}
	if saved != nil && saved.Header.Has("Etag") {
		r.Header.Add("If-None-Match", saved.Header.Get("Etag"))
	}
	resp := g.forward(ctx, x)
	switch {
	case saved != nil && resp.Status == 304:
		response.Discard(resp)
		saved.Confirm()
		x.source = response.FromRevalidated
		header := response.SharedHeader(resp.Header)
		for _, f := range saved.Header { // a 304 lacks what describes the body
			if !resp.Header.Has(f.Name) {
				header = append(header, f)
			}
		}
		return &api.Response{Status: 200, Header: header, Body: saved.Body, Length: int64(len(saved.Body))}
	case resp.Status == 200 && (resp.Header.Has("Etag") || r.Path == openapi.Index):
		g.memory.openAPIDocuments.Save(key, resp)
	}
	return resp
}

// offlineOpenAPI responds with a document that the upstream has confirmed within the offline TTL,
// or returns nil.
func (g *Gateway) offlineOpenAPI(ctx context.Context, x *exchange, saved *openapi.Document) *api.Response {
	age := time.Since(saved.ConfirmedAt())
	if age > x.policy.Offline.TTL {
		return nil
	}
	if rejection := g.permit(ctx, x); rejection != nil {
		return rejection
	}
	x.source = response.FromCache
	resp := &api.Response{Status: 200, Header: response.SharedHeader(saved.Header), Body: saved.Body, Length: int64(len(saved.Body))}
	if tag := saved.Header.Get("Etag"); tag != "" && x.Request.Header.Get("If-None-Match") == tag {
		resp = &api.Response{Status: 304, Header: api.Header{{Name: "Etag", Value: tag}}}
	}
	g.markStale(resp, max(age, 1))
	return resp
}
