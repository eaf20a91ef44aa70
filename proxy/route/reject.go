package route

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Rejections of reads that only stale knowledge could serve.
var (
	errUnconfirmedClient = Unavailable("the gateway cannot authenticate or authorize the request at the upstream API server, please try again later")
	errUnconfirmedCache  = Unavailable("no API server has confirmed the cached data since the gateway restarted, please try again later")
	errOfflineExpired    = Unavailable("no API server responds, and the cached data is older than --offline-ttl allows")
)

// Unavailable returns a 503 with Retry-After.
func Unavailable(message string) error {
	err := api.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// Forbidden returns the 403 of the request, with the authorizer's reason.
func (f *Facts) Forbidden(why string) error {
	return authz.Forbidden(f.Subject.User, authz.AttributesOf(f.Info), why)
}

func (f *Facts) forbidden(why string) Decision {
	return Decision{Action: Reject, Rejection: reason.Forbidden, Err: f.Forbidden(why)}
}

// OverBudget rejects a client that has exhausted a budget.
func (f *Facts) OverBudget() Decision {
	return Decision{Action: Reject, Rejection: reason.OverBudget, Err: f.Budgets.Rejection()}
}

// isWhole reports whether a response is passed on as it is in a redacted view, too, because there
// are no objects in it.
func (f *Facts) isWhole() bool {
	return policy.IsSelfReview(f.Request) || !f.Info.IsResourceRequest && f.Info.Path != api.SnapshotPath
}

// unredactable returns why the upstream's response to a read could not be redacted.
func (f *Facts) unredactable() error {
	const view = "a rule of kubeweir (view: redacted) shows this client a redacted view, which "
	if f.Info.Path == api.SnapshotPath {
		return f.Forbidden(view + "has no snapshots of the store")
	}
	if f.Request.Upgrade != "" {
		return f.Forbidden(view + "allows WebSockets only for cached resources")
	}
	if _, ok := api.AcceptJSON(f.Request.Header.Get("Accept"), f.PrintsTables); !ok {
		return api.NewNotAcceptable(view + "is available only as JSON for uncached resources: accept application/json as well")
	}
	return nil
}

// wrongVerb returns the 400 of a query that is no list.
func wrongVerb(verb string) error {
	if verb == "watch" {
		return apierrors.NewBadRequest("sortBy, where, offset, fields and countBy are not supported for watches: watch without them, and list again after a change")
	}
	return apierrors.NewBadRequest("sortBy, where, offset, fields and countBy are not supported for deletions: a server that does not know them would delete all objects")
}

// queryErr returns the response to a query that the cache cannot serve.
func (f *Facts) queryErr(why reason.Forward, err error) error {
	if ahead, ok := errors.AsType[*store.TooLargeError](err); ok {
		return api.NewTooLargeResourceVersion(ahead.RV, ahead.Current, 1)
	}
	const only = "sortBy, where, offset, fields and countBy are served only from the cache"
	switch why {
	case reason.VersionGone:
		return api.NewExpiredList()
	case reason.DefinitionsUnknown, reason.CacheUnavailable, reason.Redefined, reason.VersionAhead:
		return Unavailable(fmt.Sprintf("%s, which cannot be read now (%s)", only, why))
	case reason.NotCurrent:
		return Unavailable(only + ", which cannot confirm the most recent state now (not-current): set resourceVersion=0 to read the cached state")
	case reason.Inexact:
		return apierrors.NewBadRequest(only + ", and this request is ambiguous (inexact): give each parameter once, percent-encoded in ASCII, and only parameters of lists")
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s, which cannot serve this list (%s): omit these parameters", only, why))
}

// visibleErr returns the response to a read of visible namespaces that the cache cannot serve.
func (f *Facts) visibleErr(why reason.Forward, err error) error {
	if err := f.versionErr(why, err); err != nil {
		return err
	}
	text := fmt.Sprintf("lists over all namespaces that you may list are served only from kubeweir's cache, which cannot serve this request (%s)", why)
	switch why {
	case reason.CacheUnavailable, reason.Redefined, reason.VersionAhead, reason.NotCurrent:
		return Unavailable(text)
	}
	return f.Forbidden(text)
}

// shardErr returns the response to a request for a shard that neither the cache nor the upstream can
// serve: kube-apiserver's error for the case, if it has one.
//
// A server that does not know shardSelector (KEP-5866) ignores it and responds with, or deletes, the
// whole collection, and behind one address there may be servers of several releases. So a response
// of the upstream is passed on only if it says that it is the shard: a list of a Go type in JSON or
// protobuf does, a watch, a Table or a list of custom resources does not. A deletion would say it too
// late.
func (f *Facts) shardErr(why reason.Forward, err error) error {
	if err := f.versionErr(why, err); err != nil {
		return err
	}
	switch why {
	case reason.DefinitionsUnknown, reason.CacheUnavailable, reason.Redefined, reason.VersionAhead, reason.NotCurrent:
		return Unavailable(fmt.Sprintf("the shard cannot be read from the cache now (%s), and the upstream's response does not confirm the shard", why))
	case reason.NotForwarded: // a deletion
		return apierrors.NewBadRequest("shardSelector is not supported for deletions: a server that does not know it would delete the objects of all shards")
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the shard cannot be read from the cache (%s), and the upstream's response does not confirm the shard", why))
}

// versionErr returns kube-apiserver's error for a version that the cache does not hold, nil if that
// is not the case.
func (f *Facts) versionErr(why reason.Forward, err error) error {
	if ahead, ok := errors.AsType[*store.TooLargeError](err); ok {
		return api.NewTooLargeResourceVersion(ahead.RV, ahead.Current, 1)
	}
	if expired, ok := errors.AsType[*watchmux.ExpiredError](err); ok && why != reason.VersionGone {
		return api.NewExpiredWatch(expired.From, expired.Oldest)
	}
	switch {
	case why != reason.VersionGone:
		return nil
	case f.Info.Options.Continue == "" || f.Info.Query != nil:
		return api.NewExpiredList()
	}
	token, err := api.DecodeContinue(f.Info.Options.Continue)
	if err != nil {
		return err
	}
	return api.NewExpiredContinue(token)
}
