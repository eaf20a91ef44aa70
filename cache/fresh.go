package cache

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/object"
)

// checker finds out whether a store is as new as its source, and makes it so. It is safe for
// concurrent use.
type checker struct {
	checkerOptions
	prompt    source.PromptSource // nil if the source is not one
	immediate prometheus.Counter  // of rounds; with a PromptSource only
	fresh     flight.Group[struct{}, uint64]
	referrer  referrer
}

// checkerOptions configure a checker. All are required.
type checkerOptions struct {
	store     *store.Store
	source    source.Source
	resource  *source.Resource
	encoding  api.Encoding
	names     *source.Names
	reflector reflector
	rounds    *prometheus.CounterVec // by the way that a round took
}

// reflector is what a checker needs of the reflector that fills its store.
type reflector interface {
	// Restart ends the open watch with cause, so that the reflector looks at the source anew.
	Restart(cause error)
	// SendsBookmarks reports whether the source is known to send bookmarks.
	SendsBookmarks() bool
	// Decode decodes an object of the source.
	Decode(raw []byte) (*object.Object, error)
}

func newChecker(o checkerOptions) *checker {
	c := &checker{checkerOptions: o}
	if c.prompt, _ = o.source.(source.PromptSource); c.prompt != nil {
		c.immediate = o.rounds.WithLabelValues("told")
	} else {
		c.referrer.names = o.names
	}
	return c
}

// Asked is what the source was asked for: requests, and the bytes of their answers. Of what
// several callers share, each has a part.
type Asked struct{ Requests, Bytes float64 }

// FreshFor returns a version which the store holds and which is at least as new as every write that
// the source acknowledged before the call. Concurrent callers share a round, never one that began
// before they called. The error wraps ErrUnsupported if the source cannot tell its version; it is a
// *TooLargeError if the watch does not bring it in time. What the source was asked for is added to
// asked.
func (c *checker) FreshFor(ctx context.Context, asked *Asked) (uint64, error) {
	if rv, err := c.FreshAtOnce(ctx); !errors.Is(err, source.ErrUnsupported) {
		return rv, err
	}
	rv, by, err := c.fresh.Do(ctx, struct{}{}, c.freshRound)
	asked.Requests += by.Part()
	return rv, err
}

// WaitFor returns when the store holds rv. The errors are those of Store.WaitFor.
func (c *checker) WaitFor(ctx context.Context, rv uint64, timeout time.Duration) error {
	if c.store.LatestRV() >= rv {
		return nil
	}
	if c.prompt != nil && timeout > 0 {
		// Maybe nothing of this resource is missing.
		_ = c.advance(ctx, timeout)
	}
	return c.store.WaitFor(ctx, rv, timeout)
}

// Named reports whether the upstream names the versions of objects for Revalidate, as far as is known, and soon enough.
func (c *checker) Named() bool { return !c.referrer.lacks() && !c.trails() }
