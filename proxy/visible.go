package proxy

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/rbac"
	"github.com/kubeweir/kubeweir/proxy/authz/visible"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/route"
)

// By a rule with visibleLists, a list or watch of all namespaces whose user may not make it shows the namespaces that the
// user may list, or watch, one after the other (visible.Finder). It is answered from the cache and in no other way: what
// the gateway would ask the upstream for, with its own rights, is more than the user may see.

// newVisible returns the finder of the namespaces that users may see.
func newVisible(o *Options) *visible.Finder {
	held := rbac.NewCached(o.Resources, o.Manager, o.Logger)
	return visible.New(visible.Options{
		Authorizer: o.Authorizer, Max: o.VisibleNamespaces, RecheckPeriod: o.Revocation.RecheckPeriod(), Registerer: o.Registerer,
		Grants: func() visible.Grants {
			if rules := held.Get(func(*cache.Collection) bool { return true }); rules != nil {
				return rules
			}
			return nil
		},
		All: func(ctx context.Context) (state uint64, names func() []string, err error) {
			return namesOfNamespaces(ctx, o.Resources, o.Manager)
		},
	})
}

// namesOfNamespaces returns the names of all namespaces in the cache. state changes when they do.
func namesOfNamespaces(ctx context.Context, resources Resources, manager *cache.Manager) (state uint64, names func() []string, err error) {
	res, ok := resources.Lookup(route.Namespaces)
	if !ok {
		return 0, nil, discovery.ErrNotServed
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

// findNamespaces finds the namespaces of all that the user may see.
func (g *Gateway) findNamespaces(ctx context.Context, x *exchange) *api.Response {
	set, reviews, err := g.visible.Of(ctx, x.Subject.User, authz.AttributesOf(x.Info))
	x.countReviews(reviews)
	x.Visible = route.No
	switch {
	case errors.Is(err, visible.ErrUnknown):
		x.Decision.Reason = err.Error()
	case err != nil:
		return g.rejectUnreviewed(ctx, x, err, reason.Forbidden, reason.UserReviews)
	case set.Namespaces.Len() > 0:
		x.Visible = route.Yes
		x.Query.Visible, x.Query.Filter.Within = set, set.Namespaces
		offline := x.Decision.Offline
		x.Decision = set.Decision
		x.Decision.Offline = x.Decision.Offline || offline
		x.Decision.Reason = fmt.Sprintf("a rule of kubeweir narrows the request to the %d namespaces in which the user may make it", set.Namespaces.Len())
	}
	return nil
}

// visibleWarning returns the warning that a response covers only the visible namespaces.
func visibleWarning(set *visible.Set) string {
	if set.Namespaces.Len() == 1 {
		return `299 kubeweir "only 1 namespace that you may list"`
	}
	return fmt.Sprintf(`299 kubeweir "only %d namespaces that you may list"`, set.Namespaces.Len())
}

// visibleLimit rejects a watch because too many namespaces are being followed.
func (g *Gateway) visibleLimit(x *exchange) *api.Response {
	g.countRejected(x, reason.VisibleLimit)
	return x.fail(apierrors.NewTooManyRequests("the namespaces of too many watches are being followed, please try again later", 1))
}
