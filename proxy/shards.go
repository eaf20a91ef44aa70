package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/reason"
	"github.com/kubeweir/kubeweir/shard"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Shards of collections (parameter shardSelector, KEP-5866) are read from the cache
// whatever stands behind it. A server that does not know the parameter passes over it and
// answers with, or deletes, the whole collection, and behind one address there may be
// servers of several releases. So what the cache cannot answer is forwarded, but nothing
// passes for a shard that does not say that it is one: a list of a Go type in JSON or
// protobuf does, a watch, a Table or a list of custom resources does not. A deletion would
// say it too late.

// setShard completes the filter of a list or watch. The error is upstream's.
func (q *readQuery) setShard(p *shard.Parser) (err error) {
	if q.options.ShardSelector != "" {
		q.filter.Shard, err = p.Parse(q.options.ShardSelector)
	}
	return err
}

// forwardShard forwards a read with a shardSelector and passes on what cannot be mistaken
// for more than the shard: an error, or a list that echoes the selector. All else is
// refused.
func (g *Gateway) forwardShard(ctx context.Context, x *exchange, out outcome) *api.Response {
	if isRead(x) {
		x.request.Header.Del("Accept-Encoding") // the answer is read here
		resp := g.forwardRead(ctx, x, out.why)
		if resp.Status >= 400 {
			return resp
		}
		if x.info.Verb != "list" || resp.Upgrade != nil {
			discard(resp)
		} else if list, err := g.collapser.read(resp); err == nil && list.isShard(x.info.ShardSelector) {
			return list.response()
		}
	}
	x.source = fromGateway
	g.refused.Count(reason.ShardUnknown)
	return x.fail(shardRefusal(x.info, out))
}

// isShard reports whether the answer is a list that says that it is the part of its
// collection that selector selects.
func (a *collapsed) isShard(selector string) bool {
	wanted, err := shard.Parse(selector)
	if err != nil {
		return false
	}
	mediaType, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	var codec encoding.Codec
	for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
		if mediaType == enc.MediaType() {
			codec = object.Codec(enc)
		}
	}
	if codec == nil {
		return false
	}
	var body []io.Reader
	for _, piece := range a.body.all {
		body = append(body, bytes.NewReader(piece))
	}
	meta, err := codec.ReadList(io.MultiReader(body...), encoding.ReadOptions{Limit: int(a.body.size)}, func([]byte) error { return nil })
	return err == nil && meta.Shard == wanted.String()
}

// shardRefusal is what is said instead of the answer that there is nobody to give: where
// kube-apiserver has an error for the case, that.
func shardRefusal(info *api.RequestInfo, out outcome) error {
	if err := versionRefusal(info, out); err != nil {
		return err
	}
	switch out.why {
	case reason.DefinitionsUnknown, reason.CacheUnavailable, reason.Redefined, reason.VersionAhead, reason.Unproven:
		err := api.NewServiceUnavailable(fmt.Sprintf("the shard cannot be read from the cache now (%s), and the upstream's answer does not say that it is one", out.why))
		err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return err
	case reason.NotForwarded: // a deletion
		return apierrors.NewBadRequest("objects are not deleted by shard: a server that does not know shardSelector would delete those of all shards")
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the shard cannot be read from the cache (%s), and the upstream's answer does not say that it is one", out.why))
}

// versionRefusal is kube-apiserver's error for a version that the cache does not hold, nil if that is not the case.
func versionRefusal(info *api.RequestInfo, out outcome) error {
	var ahead *store.TooLargeError
	var expired *watchmux.ExpiredError
	switch {
	case errors.As(out.err, &ahead):
		return api.NewTooLargeResourceVersion(ahead.RV, ahead.Current, 1)
	case out.why == reason.VersionGone && info.Options.Continue != "" && info.Query == nil:
		token, err := api.DecodeContinue(info.Options.Continue)
		if err != nil {
			return err
		}
		return api.NewExpiredContinue(token)
	case out.why == reason.VersionGone:
		return api.NewExpiredList()
	case errors.As(out.err, &expired):
		return api.NewExpiredWatch(expired.From, expired.Oldest)
	}
	return nil
}
