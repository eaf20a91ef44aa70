package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// ErrUnauthenticated is the cause of every answer 401. StatusError makes the
// answer of it; the text that it is wrapped in is for logs.
var ErrUnauthenticated = errors.New("unauthenticated")

// ErrUnavailable is the cause when the upstream could not be asked.
var ErrUnavailable = errors.New("the upstream could not be asked")

// errMayNotAsk is the cause when the upstream does not let the gateway ask. So does
// every kube-apiserver that has not read its RBAC objects yet. Unlike ErrUnavailable
// it lends no older answer a longer life: whoever takes the right to ask away from a
// gateway wants it to let nobody in.
var errMayNotAsk = errors.New("the upstream does not let the gateway ask")

// errReviewRefused is the cause when the upstream does not take the gateway's
// questions. What it says of them is about the gateway: for the log, not for clients.
var errReviewRefused = errors.New("the upstream refused the question")

// ErrUpstreamDecides is returned by Authorize for the user of a Subject with
// UpstreamDecides set: the request must be forwarded.
var ErrUpstreamDecides = errors.New("the impersonation is the upstream's to decide")

// ErrNotAsked is the cause when the upstream would have to be asked and the caller said that
// it may not be, see WithoutAsking. It tells nothing of what the user may do.
var ErrNotAsked = errors.New("the upstream is not to be asked")

// WithoutAsking is a context with which the upstream is asked for nothing: what is not
// remembered, or decided here, ends in ErrNotAsked.
func WithoutAsking(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutAsking{}, true)
}

type withoutAsking struct{}

func mayNotAsk(ctx context.Context) bool { return ctx.Value(withoutAsking{}) != nil }

// StatusError maps an error of this package to the answer for the client.
// Errors that are already a status pass unchanged. An upstream that cannot be
// asked is 503, not 401, so that clients keep their credentials and come back.
func StatusError(err error) *apierrors.StatusError {
	var status *apierrors.StatusError
	switch {
	case errors.Is(err, ErrUnauthenticated):
		return apierrors.NewUnauthorized("Unauthorized")
	case errors.Is(err, ErrUnavailable), errors.Is(err, errMayNotAsk):
		status = apierrors.NewServiceUnavailable("the upstream could not be asked who you are and what you may do")
		status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return status
	case errors.Is(err, errReviewRefused):
		return apierrors.NewInternalError(errors.New("the gateway cannot ask the upstream who you are and what you may do; its log says why"))
	case errors.As(err, &status):
		return status
	}
	return apierrors.NewInternalError(err)
}

// notServed is a 403 that is not about what the user may do.
func notServed(why string) error {
	err := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	err.ErrStatus.Message = "forbidden: " + why
	return err
}

// Forbidden is kube-apiserver's answer 403, word for word
// (responsewriters.ForbiddenStatusError). reason is the authorizer's, "" without.
func Forbidden(u user.Info, a Attributes, reason string) *apierrors.StatusError {
	message := escapeHTML(forbiddenMessage(u, &a))
	if reason != "" {
		message += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.APIGroup, Resource: a.Resource}, a.Name, errors.New(message))
}

func forbiddenMessage(u user.Info, a *Attributes) string {
	if !a.ResourceRequest {
		return fmt.Sprintf("User %q cannot %s path %q", u.GetName(), a.Verb, a.Path)
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	if a.Namespace != "" {
		return fmt.Sprintf("User %q cannot %s resource %q in API group %q in the namespace %q",
			u.GetName(), a.Verb, resource, a.APIGroup, a.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q at the cluster scope",
		u.GetName(), a.Verb, resource, a.APIGroup)
}

// escapeHTML keeps a message from looking like HTML, as kube-apiserver does.
func escapeHTML(s string) string {
	if !strings.ContainsAny(s, "&<>") {
		return s
	}
	return strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;").Replace(s)
}

// reviewError says what a failed review means. Answers that tell of the upstream's
// state, and everything that is no answer at all, are ErrUnavailable; the rest is
// about the gateway.
func reviewError(what string, err error) error {
	cause := ErrUnavailable
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch code := status.Status().Code; {
		case code == 401, code == 403:
			cause = errMayNotAsk
		case code < 500 && code != 429:
			cause = errReviewRefused
		}
	}
	return fmt.Errorf("%s: %w: %w", what, cause, withoutStatus{err})
}

// complainOfSetup tells the operator, from time to time, of an answer to a review
// that is no answer but a refusal of the question. A refusal of the gateway itself is
// told by who asks, see upstream.
func complainOfSetup(c *complaint, log *slog.Logger, resource string, err error) {
	if !errors.Is(reviewError("", err), errReviewRefused) || !c.due() {
		return
	}
	log.Warn("the upstream does not take the gateway's reviews", "resource", resource, "error", err)
}

// withoutStatus hides the status of a review's error, which answers the
// gateway's request and not the client's.
type withoutStatus struct{ err error }

func (e withoutStatus) Error() string { return e.err.Error() }

// Unwrap shows what is below a network error only.
func (e withoutStatus) Unwrap() error {
	var status apierrors.APIStatus
	if errors.As(e.err, &status) {
		return nil
	}
	return e.err
}
