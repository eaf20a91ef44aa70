package app

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubeweir/kubeweir/origin/server"
	"github.com/kubeweir/kubeweir/proxy/authz"
)

// tokenReviewer reviews tokens by the origin's authenticator.
type tokenReviewer struct{ server *server.Server }

// Create implements authn.TokenReviewer.
func (r tokenReviewer) Create(ctx context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	out := &authenticationv1.TokenReview{Spec: review.Spec}
	response, ok, err := r.server.AuthenticateToken(ctx, review.Spec.Token)
	if err != nil {
		out.Status.Error = err.Error()
	}
	if err != nil || !ok {
		return out, nil
	}
	out.Status.Authenticated = true
	out.Status.User = authenticationv1.UserInfo{
		Username: response.User.GetName(), UID: response.User.GetUID(), Groups: response.User.GetGroups(),
	}
	if extra := response.User.GetExtra(); len(extra) > 0 {
		out.Status.User.Extra = make(map[string]authenticationv1.ExtraValue, len(extra))
		for key, values := range extra {
			out.Status.User.Extra[key] = values
		}
	}
	return out, nil
}

// decider decides by the origin's authorizer.
type decider struct{ server *server.Server }

// Decide implements authz.Decider.
func (d decider) Decide(ctx context.Context, u user.Info, a authz.Attributes) (allowed bool, reason string, err error) {
	decision, reason, err := d.server.Authorizer().Authorize(ctx, a.Record(u))
	if decision == authorizer.DecisionAllow {
		return true, reason, nil
	}
	return false, reason, err
}
