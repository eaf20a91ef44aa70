package proxy

import (
	"bytes"
	"context"
	"strings"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/shard"
	"github.com/kubeweir/kubeweir/proxy/consistency"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/route"
)

// Shards of collections (parameter shardSelector, KEP-5866) are served from the cache, whatever the
// upstream is. Requests that the cache cannot serve are forwarded, and the response is passed on
// only if it says that it is the shard: a server that does not know the parameter ignores it.

// forwardShard forwards a read with a shardSelector. It passes on only responses that cannot be
// mistaken for more than the shard: errors, and lists that echo the selector. All others are
// rejected.
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
	x.source = response.FromGateway
	return g.reject(ctx, x, route.Decision{Rejection: reason.ShardUnknown, Err: d.Err})
}

// isShard reports whether the response is a list that declares itself to be the shard that selector
// selects.
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
	body := a.Body()
	meta, err := codec.ReadList(bytes.NewReader(body), encoding.ReadOptions{Limit: len(body)}, func([]byte) error { return nil })
	return err == nil && meta.Shard == wanted.String()
}
