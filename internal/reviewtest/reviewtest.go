// Package reviewtest provides fake TokenReviews and SubjectAccessReviews for tests.
package reviewtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrDown is the error of reviews while the upstream is down.
var ErrDown = errors.New("connection refused")

// Tokens is a fake TokenReviewer. It is safe for concurrent use.
type Tokens struct {
	mu      sync.Mutex
	users   map[string]authenticationv1.UserInfo
	Err     error
	reviews int
	Wait    chan struct{} // if set, reviews wait until it is closed
}

// Create implements TokenReviewer.
func (f *Tokens) Create(ctx context.Context, r *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	f.mu.Lock()
	f.reviews++
	wait := f.Wait
	f.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Err != nil {
		return nil, f.Err
	}
	out := r.DeepCopy()
	if u, ok := f.users[r.Spec.Token]; ok {
		out.Status.Authenticated, out.Status.User = true, u
	} else {
		out.Status.Error = "invalid bearer token"
	}
	return out, nil
}

// Set makes a token identify a user.
func (f *Tokens) Set(token string, u authenticationv1.UserInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users == nil {
		f.users = make(map[string]authenticationv1.UserInfo)
	}
	f.users[token] = u
}

// Drop makes a token invalid.
func (f *Tokens) Drop(token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.users, token)
}

// Fail makes reviews fail with err, or succeed again for nil.
func (f *Tokens) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Err = err
}

// Count returns how many reviews were made.
func (f *Tokens) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reviews
}

// Access is a fake AccessReviewer that calls a function. It is safe for concurrent use.
type Access struct {
	mu      sync.Mutex
	Allow   func(spec *authorizationv1.SubjectAccessReviewSpec) bool
	Err     error
	reviews []authorizationv1.SubjectAccessReviewSpec
	Latency time.Duration
	Begun   func() // called when a review begins, without the lock
}

// Create implements AccessReviewer.
func (f *Access) Create(ctx context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	f.mu.Lock()
	f.reviews = append(f.reviews, r.Spec)
	// The decision is made at the beginning: changes during the latency do not affect it.
	allowed, err, latency, begun := f.Allow != nil && f.Allow(&r.Spec), f.Err, f.Latency, f.Begun
	f.mu.Unlock()
	if begun != nil {
		begun()
	}
	if latency > 0 {
		select {
		case <-time.After(latency):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	out := r.DeepCopy()
	out.Status.Allowed = allowed
	if allowed {
		out.Status.Reason = "RBAC: allowed"
	}
	return out, nil
}

// Set replaces Allow.
func (f *Access) Set(allow func(spec *authorizationv1.SubjectAccessReviewSpec) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Allow = allow
}

// Fail replaces Err.
func (f *Access) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Err = err
}

// Count returns how many reviews were made.
func (f *Access) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.reviews)
}

// Specs returns the specs of the reviews that were made.
func (f *Access) Specs() []authorizationv1.SubjectAccessReviewSpec {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.reviews)
}

// Everything allows every request.
func Everything(*authorizationv1.SubjectAccessReviewSpec) bool { return true }

// Nothing allows no request.
func Nothing(*authorizationv1.SubjectAccessReviewSpec) bool { return false }

// Only allows every request of some users.
func Only(names ...string) func(*authorizationv1.SubjectAccessReviewSpec) bool {
	return func(s *authorizationv1.SubjectAccessReviewSpec) bool { return slices.Contains(names, s.User) }
}

// Slow delays reviews from now on.
func (f *Access) Slow(latency time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Latency = latency
}

// Hang makes reviews wait until hang is closed, and resets the count.
func (f *Tokens) Hang(hang chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Wait, f.reviews = hang, 0
}
