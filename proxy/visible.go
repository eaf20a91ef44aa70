package proxy

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/visible"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/reason"
)

// By a rule with visibleLists, a list or watch of all namespaces whose user may not make it shows the namespaces that the
// user may list, or watch, one after the other (visible.Finder). It is answered from the cache and in no other way: what
// the gateway would ask the upstream for, with its own rights, is more than the user may see.

// namespaces are the Namespaces themselves.
var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// newVisible returns what finds the namespaces that users may see.
func newVisible(o *Options) *visible.Finder {
	held := &heldRules{resources: o.Resources, manager: o.Manager, log: o.Logger}
	return visible.New(visible.Options{
		Authorizer: o.Authorizer, Max: o.VisibleNamespaces, RecheckPeriod: o.Revocation.RecheckPeriod(), Registerer: o.Registerer,
		Grants: func() visible.Grants {
			if rules := held.get(func(*cache.Collection) bool { return true }); rules != nil {
				return rules
			}
			return nil
		},
		All: func(ctx context.Context) (state uint64, names func() []string, err error) {
			return namesOfNamespaces(ctx, o.Resources, o.Manager)
		},
	})
}

// namesOfNamespaces are all that the cluster has, as far as the cache holds them, and what is another number once they are
// others.
func namesOfNamespaces(ctx context.Context, resources *Resources, manager *cache.Manager) (state uint64, names func() []string, err error) {
	res, ok := resources.Lookup(namespaces)
	if !ok {
		return 0, nil, errNotServed
	}
	c, err := manager.Collection(ctx, res, api.JSON)
	if err != nil {
		return 0, nil, err
	}
	v := c.Snapshot()
	return v.Content(), func() []string {
		all := make([]string, 0, v.Len())
		v.Ascend("", "", func(o *object.Object) bool {
			all = append(all, o.Name)
			return true
		})
		return all
	}, nil
}

// permitRead is permit for a read that the cache may answer, and narrows it to what is visible where a rule says so.
func (g *Gateway) permitRead(ctx context.Context, x *exchange, q *readQuery) *api.Response {
	if x.settings.VisibleLists != policy.Yes || !showsNamespaces(x.info, q.res) {
		return g.permit(ctx, x)
	}
	d, refusal := g.review(ctx, x)
	if refusal != nil || d.Allowed {
		return refusal
	}
	set, asked, err := g.visible.Of(ctx, x.subject.User, authz.AttributesOf(x.info))
	x.askedReviews(asked)
	switch {
	case errors.Is(err, visible.ErrUnknown):
		return g.forbidRead(ctx, x, err.Error())
	case err != nil:
		return g.refuse(ctx, x, err, reason.Forbidden, reason.UserReviews)
	case set.Namespaces.Len() == 0:
		return g.forbidRead(ctx, x, d.Reason)
	}
	q.visible, q.filter.Within = set, set.Namespaces
	x.decision = set.Decision
	x.decision.Offline = x.decision.Offline || d.Offline
	x.decision.Reason = fmt.Sprintf("a rule of kubeweir narrows the request to the %d namespaces in which the user may make it", set.Namespaces.Len())
	return nil
}

// showsNamespaces reports whether a request is a list or watch of what is in all namespaces, or of the Namespaces.
func showsNamespaces(info *api.RequestInfo, res *source.Resource) bool {
	return (info.Verb == "list" || info.Verb == "watch") && info.Namespace == "" && !info.NamedByPath &&
		(res.Namespaced || res.GroupVersionResource == namespaces)
}

// readVisible answers a read of visible namespaces, and says so in the answer.
func (g *Gateway) readVisible(ctx context.Context, x *exchange, q readQuery) outcome {
	out := g.readPermitted(ctx, x, q)
	switch {
	case out.answer == nil:
		g.refused.Count(reason.VisibleUnanswered)
		return answeredWith(x.fail(visibleRefusal(x, out)))
	case out.answer.Status < 400 && out.answer.Status != 101:
		out.answer.Header.Add("Warning", fmt.Sprintf(`299 kubeweir "only %d namespaces that you may list"`, q.visible.Namespaces.Len()))
	}
	return out
}

// visibleRefusal is what is said instead of an answer that there is nobody to give.
func visibleRefusal(x *exchange, out outcome) error {
	if err := versionRefusal(x.info, out); err != nil {
		return err
	}
	text := fmt.Sprintf("the namespaces that you may list are listed together from kubeweir's cache only, which does not answer this (%s)", out.why)
	switch out.why {
	case reason.CacheUnavailable, reason.Redefined, reason.VersionAhead, reason.Unproven:
		return comeBack(text)
	}
	return authz.Forbidden(x.subject.User, authz.AttributesOf(x.info), text)
}

// visibleLimit refuses a watch whose namespaces there is no room to follow.
func (g *Gateway) visibleLimit(x *exchange) *api.Response {
	g.refused.Count(reason.VisibleLimit)
	return x.fail(apierrors.NewTooManyRequests("the namespaces of too many watches are being followed, please try again later", 1))
}
