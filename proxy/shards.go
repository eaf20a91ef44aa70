package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/reason"
	"github.com/kubeweir/kubeweir/shard"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Shards of collections (parameter shardSelector, KEP-5866) are read from the cache
// whatever stands behind it. A server that does not know the parameter passes over it and
// answers with, or deletes, the whole collection, so that what the cache cannot answer is
// forwarded only to one that has just shown that it knows the parameter.

// setShard completes the filter of a list or watch. The error is upstream's.
func (q *readQuery) setShard() (err error) {
	if q.options.ShardSelector != "" {
		q.filter.Shard, err = shard.Parse(q.options.ShardSelector)
	}
	return err
}

// forwardShard forwards a request with a shardSelector if the upstream knows that, else
// refuses it.
func (g *Gateway) forwardShard(ctx context.Context, x *exchange, out outcome) *api.Response {
	known, refusal := g.askForShards(ctx, x)
	switch {
	case known && isRead(x):
		return g.forwardRead(ctx, x, out.why)
	case known:
		return g.forward(ctx, x)
	case refusal != nil:
		x.source = fromUpstream
		return refusal
	}
	x.source = fromGateway
	g.refused.Count(reason.ShardUnknown)
	return x.fail(shardRefusal(x.info, out))
}

// shardComplaint is in the answer of every server that knows shardSelector to one that is
// none.
const shardComplaint = "invalid shard selector: "

// maxComplaint bounds what is read of an answer that may have the complaint.
const maxComplaint = 64 << 10

// askForShards finds out whether the server that would get the request knows
// shardSelector, by a request of the same client to the same path with one that is none.
// When that is refused for something else, the request would be, too: as refusal says.
func (g *Gateway) askForShards(ctx context.Context, x *exchange) (known bool, refusal *api.Response) {
	r := x.request
	question := &api.Request{
		Method: "GET", Path: r.Path, RawPath: r.RawPath, RawQuery: "shardSelector=none&limit=1", Host: r.Host,
		Header: slices.Clone(r.Header), RemoteAddr: r.RemoteAddr, PeerCertificates: r.PeerCertificates, Proto: r.Proto, Listener: r.Listener,
	}
	if x.info.Verb == "watch" {
		question.RawQuery += "&watch=1&timeoutSeconds=1"
	}
	for _, name := range []string{"Connection", "Upgrade", "Accept-Encoding"} {
		question.Header.Del(name)
	}
	resp := g.forward(ctx, &exchange{request: question, info: question.Info(), auditID: x.auditID, sender: x.sender, subject: x.subject})
	if resp.Stream != nil {
		resp.Stream.Stop()
	}
	if resp.Status < 400 || resp.Stream != nil || resp.Upgrade != nil {
		finish(resp, 0, nil)
		return false, nil
	}
	body := pieces{max: maxComplaint, reserve: func(int64) bool { return true }}
	n, err := int64(len(resp.Body)), error(nil)
	if resp.BodyTo == nil {
		_, err = body.Write(resp.Body)
	} else {
		n, err = resp.BodyTo.WriteTo(&body)
	}
	finish(resp, n, err)
	text := bytes.Join(body.all, nil)
	// A 403 repeats what the client has in its path.
	if err == nil && (resp.Status == 400 || resp.Status == 500) && bytes.Contains(text, []byte(shardComplaint)) {
		return true, nil
	}
	resp.Header.Del("Content-Length")
	return false, &api.Response{Status: resp.Status, Header: resp.Header, Body: text, Length: int64(len(text))}
}

// shardRefusal is what is said instead of the answer that there is nobody to give: where
// kube-apiserver has an error for the case, that.
func shardRefusal(info *api.RequestInfo, out outcome) error {
	var ahead *cache.TooLargeError
	var expired *watchmux.ExpiredError
	switch {
	case errors.As(out.err, &ahead):
		return api.NewTooLargeResourceVersion(ahead.RV, ahead.Current, 1)
	case out.why == reason.VersionGone && info.Options.Continue != "":
		token, err := api.DecodeContinue(info.Options.Continue)
		if err != nil {
			return err
		}
		return api.NewExpiredContinue(token.Start)
	case out.why == reason.VersionGone:
		return api.NewExpiredList()
	case errors.As(out.err, &expired):
		return api.NewExpiredWatch(expired.From, expired.Oldest)
	}
	switch out.why {
	case reason.DefinitionsUnknown, reason.CacheUnavailable, reason.Redefined, reason.VersionAhead, reason.Unproven:
		err := api.NewServiceUnavailable(fmt.Sprintf("the shard cannot be read from the cache now (%s), and the upstream does not know shardSelector", out.why))
		err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return err
	case reason.NotForwarded: // a deletion
		return apierrors.NewBadRequest("the upstream does not know shardSelector: it would delete objects of all shards")
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the shard cannot be read from the cache (%s), and the upstream does not know shardSelector", out.why))
}
