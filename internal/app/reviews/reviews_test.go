package reviews

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/kubeweir/kubeweir/proxy/authn"
)

// TestErrors checks which errors of authenticators are no rejections.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err       error
		temporary bool
	}{
		{errors.New("service account token has expired"), false},
		{utilerrors.NewAggregate([]error{errors.New("wrong audience"), errors.New("unknown key")}), false},
		{apierrors.NewNotFound(corev1.Resource("serviceaccounts"), "a"), false},
		{context.Canceled, true},
		{apierrors.NewInternalError(errors.New("of the webhook")), true},
		{apierrors.NewUnauthorized("of the webhook's own credentials"), true},
		{&url.Error{Op: "Post", URL: "https://127.0.0.1", Err: syscall.ECONNREFUSED}, true},
		{fmt.Errorf("authenticators: %w", utilerrors.NewAggregate([]error{errors.New("wrong audience"), context.DeadlineExceeded})), true},
	} {
		review := Tokens(func(context.Context, string) (*authenticator.Response, bool, error) { return nil, false, c.err })
		out, err := review.Create(t.Context(), &authenticationv1.TokenReview{}, metav1.CreateOptions{})
		switch {
		case c.temporary && !errors.Is(err, authn.ErrUndetermined):
			t.Errorf("%v: %v, want that the token is undetermined", c.err, err)
		case !c.temporary && (err != nil || out.Status.Authenticated || out.Status.Error != c.err.Error()):
			t.Errorf("%v: %+v, %v, want a rejection", c.err, out, err)
		}
	}
}
