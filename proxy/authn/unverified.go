package authn

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/proxy/review"
)

// Anybody can invent tokens, and the upstream has to review each of them. Unverified tokens, which
// the upstream has not accepted recently, therefore get a small share of the reviews: they wait for
// each other, and no other request waits for them.
const (
	// unverifiedReviews is how many of their reviews are in flight at a time by default.
	unverifiedReviews = 8
	// unverifiedWait is how long such a review waits for a slot.
	unverifiedWait = 3 * time.Second
	// defaultUnverifiedTokens is how many requests with such tokens wait at a time.
	defaultUnverifiedTokens = 500
	// verifiedFor is how long an accepted token counts as verified.
	verifiedFor = time.Hour
)

// errUnverified asks a client to retry. It is no 401: the token may be valid, and clients discard
// credentials that are answered 401.
func errUnverified() error {
	return apierrors.NewTooManyRequests("too many credentials are being checked for the first time, please try again later", 1)
}

// unverified limits the reviews of unverified tokens. It is safe for concurrent use.
type unverified struct {
	limit    atomic.Int64  // of requests
	requests atomic.Int64  // waiting for a review or for a slot
	slots    chan struct{} // holds one value for each review in flight
}

// enter admits a request; the caller calls leave when the request has its result.
func (u *unverified) enter() error {
	if u.requests.Add(1) > u.limit.Load() {
		u.leave()
		return errUnverified()
	}
	return nil
}

func (u *unverified) leave() { u.requests.Add(-1) }

// begin waits for a slot of a review, which end releases.
func (u *unverified) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, unverifiedWait, errUnverified())
	defer cancel()
	return review.Acquire(ctx, u.slots)
}

func (u *unverified) end() { <-u.slots }
