package authn

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Anybody can make up tokens, and each takes a review by the upstream to refuse. So
// tokens that were never seen good have a small share of the reviews, in which they
// wait for each other and nobody else waits for them.
const (
	// newcomerReviews is how many of their reviews are under way at a time.
	newcomerReviews = 8
	// newcomerWait is how long one waits for its turn.
	newcomerWait = 3 * time.Second
	// defaultNewcomers is how many requests with such tokens are waited for at a time.
	defaultNewcomers = 500
	// seenFor is how long a token that was good is known as such.
	seenFor = time.Hour
)

// errNewcomers asks a client to come back. It is no 401: the token may be good, and
// clients throw away credentials that they get a 401 for.
func errNewcomers() error {
	return apierrors.NewTooManyRequests("too many credentials are being checked for the first time, please try again later", 1)
}

// newcomers bounds the reviews of tokens that were never seen good. It is safe for
// concurrent use.
type newcomers struct {
	max      atomic.Int64
	requests atomic.Int64  // that wait for a review, or have one
	reviews  chan struct{} // holds one for each review under way
}

func newNewcomers(most int) *newcomers {
	n := &newcomers{reviews: make(chan struct{}, newcomerReviews)}
	n.max.Store(int64(most))
	return n
}

// enter admits a request; leave must be called when it has its answer.
func (n *newcomers) enter() error {
	if n.requests.Add(1) > n.max.Load() {
		n.leave()
		return errNewcomers()
	}
	return nil
}

func (n *newcomers) leave() { n.requests.Add(-1) }

// begin waits for the turn of a review; end must be called when it is over.
func (n *newcomers) begin(ctx context.Context) error {
	select {
	case n.reviews <- struct{}{}:
		return nil
	default:
	}
	patient := time.NewTimer(newcomerWait)
	defer patient.Stop()
	select {
	case n.reviews <- struct{}{}:
		return nil
	case <-patient.C:
		return errNewcomers()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (n *newcomers) end() { <-n.reviews }
