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
	errUnconfirmedClient = Unavailable("the upstream could not be asked who you are and what you may do")
	errUnconfirmedCache  = Unavailable("no API server has confirmed yet what the gateway kept over its restart")
	errOfflineExpired    = Unavailable("no API server answers, and what the cache holds is older than the gateway may serve")
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
	return Decision{Action: Reject, Refusal: reason.Forbidden, Err: f.Forbidden(why)}
}

// OverBudget rejects a client that has exhausted a budget.
func (f *Facts) OverBudget() Decision {
	return Decision{Action: Reject, Refusal: reason.OverBudget, Err: f.Spending.Rejection()}
}

// isWhole reports whether a response is passed on as it is in a redacted view, too, because there
// are no objects in it.
func (f *Facts) isWhole() bool { return policy.IsSelfReview(f.Request) || !f.Info.IsResourceRequest }

// unredactable returns why the upstream's response to a read could not be redacted.
func (f *Facts) unredactable() error {
	const view = "a rule of kubeweir shows this client a redacted view, which "
	if f.Request.Upgrade != "" {
		return f.Forbidden(view + "has no WebSockets of what is not in the cache")
	}
	if _, ok := api.AcceptJSON(f.Request.Header.Get("Accept"), f.PrintsTables); !ok {
		return api.NewNotAcceptable(view + "is in JSON where the cache does not have it: accept application/json as well")
	}
	return nil
}

// wrongVerb returns the 400 of a query that is no list.
func wrongVerb(verb string) error {
	if verb == "watch" {
		return apierrors.NewBadRequest("sortBy, where, offset, fields and countBy are parameters of lists: a watch cannot have them. List again when a watch without them tells of a change")
	}
	return apierrors.NewBadRequest("sortBy, where, offset, fields and countBy are parameters of lists: objects are not deleted by them, and a server that does not know them would delete all")
}

// queryErr returns the response to a query that the cache cannot serve.
func (f *Facts) queryErr(why reason.Forward, err error) error {
	if ahead, ok := errors.AsType[*store.TooLargeError](err); ok {
		return api.NewTooLargeResourceVersion(ahead.RV, ahead.Current, 1)
	}
	const only = "sortBy, where, offset, fields and countBy are answered from the cache only"
	switch why {
	case reason.VersionGone:
		return api.NewExpiredList()
	case reason.DefinitionsUnknown, reason.CacheUnavailable, reason.Redefined, reason.VersionAhead:
		return Unavailable(fmt.Sprintf("%s, which cannot be read now (%s)", only, why))
	case reason.Unproven:
		return Unavailable(only + ", which cannot be shown to hold the most recent state now (unproven): ask with resourceVersion=0 for the state that it holds")
	case reason.Inexact:
		return apierrors.NewBadRequest(only + ", and this request can be read in more than one way (inexact): give each parameter once, escaped, in ASCII, and none that lists do not have")
	}
	return apierrors.NewBadRequest(fmt.Sprintf("%s, and this list is not (%s): leave these parameters out", only, why))
}

// visibleErr returns the response to a read of visible namespaces that the cache cannot serve.
func (f *Facts) visibleErr(why reason.Forward, err error) error {
	if err := f.versionErr(why, err); err != nil {
		return err
	}
	text := fmt.Sprintf("the namespaces that you may list are listed together from kubeweir's cache only, which does not answer this (%s)", why)
	switch why {
	case reason.CacheUnavailable, reason.Redefined, reason.VersionAhead, reason.Unproven:
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
	case reason.DefinitionsUnknown, reason.CacheUnavailable, reason.Redefined, reason.VersionAhead, reason.Unproven:
		return Unavailable(fmt.Sprintf("the shard cannot be read from the cache now (%s), and the upstream's answer does not say that it is one", why))
	case reason.NotForwarded: // a deletion
		return apierrors.NewBadRequest("objects are not deleted by shard: a server that does not know shardSelector would delete those of all shards")
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the shard cannot be read from the cache (%s), and the upstream's answer does not say that it is one", why))
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
