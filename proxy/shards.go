package proxy

import (
	"context"
	"strings"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/proxy/consistency"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/route"
	"github.com/kubeweir/kubeweir/reason"
	"github.com/kubeweir/kubeweir/shard"
)

// Shards of collections (parameter shardSelector, KEP-5866) are read from the cache
// whatever stands behind it. A server that does not know the parameter passes over it and
// answers with, or deletes, the whole collection, and behind one address there may be
// servers of several releases. So what the cache cannot answer is forwarded, but nothing
// passes for a shard that does not say that it is one: a list of a Go type in JSON or
// protobuf does, a watch, a Table or a list of custom resources does not. A deletion would
// say it too late.

// forwardShard forwards a read with a shardSelector and passes on what cannot be mistaken for more
// than the shard: an error, or a list that echoes the selector. All else is rejected.
func (g *Gateway) forwardShard(ctx context.Context, x *exchange, d route.Decision) *api.Response {
	x.Request.Header.Del("Accept-Encoding") // the response is read here
	resp := g.forwardCounted(ctx, x, d.Why)
	if resp.Status >= 400 {
		return resp
	}
	if x.Info.Verb != "list" || resp.Upgrade != nil {
		response.Discard(resp)
	} else if list, err := g.forwards.collapser.Read(resp); err == nil && isShard(list, x.Info.ShardSelector) {
		return list.Response()
	}
	x.source = fromGateway
	return g.reject(ctx, x, route.Decision{Refusal: reason.ShardUnknown, Err: d.Err})
}

// isShard reports whether the answer is a list that says that it is the part of its
// collection that selector selects.
func isShard(a *consistency.Shared, selector string) bool {
	wanted, err := shard.Parse(selector)
	if err != nil {
		return false
	}
	mediaType, _, _ := strings.Cut(a.Header().Get("Content-Type"), ";")
	var codec encoding.Codec
	for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
		if mediaType == enc.MediaType() {
			codec = object.Codec(enc)
		}
	}
	if codec == nil {
		return false
	}
	body, size := a.Body()
	meta, err := codec.ReadList(body, encoding.ReadOptions{Limit: int(size)}, func([]byte) error { return nil })
	return err == nil && meta.Shard == wanted.String()
}
