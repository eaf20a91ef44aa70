// Package reviews answers the reviews of the proxy by the origin in the same process.
package reviews

import (
	"context"
	"errors"
	"fmt"
	"net"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubeweir/kubeweir/origin/server"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
)

// Tokens reviews tokens, for example by Server.AuthenticateToken.
type Tokens func(ctx context.Context, token string) (*authenticator.Response, bool, error)

// Create implements authn.TokenReviewer.
func (review Tokens) Create(ctx context.Context, request *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	out := &authenticationv1.TokenReview{Spec: request.Spec}
	response, ok, err := review(ctx, request.Spec.Token)
	switch {
	case err != nil && isTemporary(err):
		return nil, fmt.Errorf("%w: %w", authn.ErrUndetermined, err)
	case err != nil:
		out.Status.Error = err.Error()
		return out, nil
	case !ok:
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

// isTemporary reports whether an authenticator has failed, rather than rejected the token: a webhook or an
// issuer does not respond as it should, or the client has left.
func isTemporary(err error) bool {
	var all utilerrors.Aggregate
	if errors.As(err, &all) {
		for _, err := range all.Errors() {
			if isTemporary(err) {
				return true
			}
		}
		return false
	}
	if apierrors.IsNotFound(err) {
		return false // the service account, or what the token is bound to
	}
	var status apierrors.APIStatus
	var network net.Error
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &status) || errors.As(err, &network)
}

// Access decides by the authorizer of Server.
type Access struct{ Server *server.Server }

// Decide implements authz.Decider.
func (d Access) Decide(ctx context.Context, u user.Info, a authz.Attributes) (allowed bool, reason string, err error) {
	decision, reason, err := d.Server.Authorizer().Authorize(ctx, a.Record(u))
	if decision == authorizer.DecisionAllow {
		return true, reason, nil
	}
	return false, reason, err
}
