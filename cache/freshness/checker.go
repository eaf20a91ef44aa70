package freshness

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

// Checker determines whether a store is as new as its source, and advances the store where that can
// be proved. It is safe for concurrent use.
type Checker struct {
	Options
	prompt    source.ImmediateSource // nil if the source is not one
	immediate prometheus.Counter     // of Rounds; only with a ImmediateSource
	fresh     flight.Group[struct{}, uint64]
	referrer  referrer
}

// Options configure a Checker. All of them are required.
type Options struct {
	Store     *store.Store
	Source    source.Source
	Resource  *source.Resource
	Encoding  api.Encoding
	Versions  *source.VersionReader
	Reflector Reflector
	Rounds    *prometheus.CounterVec // by how the round ended
}

// Reflector is what a Checker needs from the reflector that fills its store.
type Reflector interface {
	// Restart ends the open watch with cause, so that the reflector examines the source.
	Restart(cause error)
	// SendsBookmarks reports whether the source is known to send bookmarks.
	SendsBookmarks() bool
	// Decode decodes an object that the source sent.
	Decode(raw []byte) (*object.Object, error)
}

// New returns a Checker.
func New(o Options) *Checker {
	c := &Checker{Options: o}
	if c.prompt, _ = o.Source.(source.ImmediateSource); c.prompt != nil {
		c.immediate = o.Rounds.WithLabelValues("told")
	} else {
		c.referrer.names = o.Versions
	}
	return c
}

// Cost counts the requests to the source and the bytes of their responses. If several callers
// share a request, each is charged a part of it.
type Cost struct{ Requests, Bytes float64 }

// Fresh returns a version that the store holds and that is at least as new as every write
// acknowledged by the source before the call. Concurrent callers share a round, but never one that
// began before they called. The error wraps ErrUnsupported if the source cannot tell its version;
// it is a *TooLargeError if the watch does not bring the version in time. The requests that the
// call made are added to asked.
func (c *Checker) Fresh(ctx context.Context, asked *Cost) (uint64, error) {
	if rv, err := c.FreshAtOnce(ctx); !errors.Is(err, source.ErrUnsupported) {
		return rv, err
	}
	rv, by, err := c.fresh.Do(ctx, struct{}{}, c.freshRound)
	asked.Requests += by.Part()
	return rv, err
}

// WaitFor returns when the store holds rv. The errors are those of Store.WaitFor.
func (c *Checker) WaitFor(ctx context.Context, rv uint64, timeout time.Duration) error {
	if c.Store.LatestRV() >= rv {
		return nil
	}
	if c.prompt != nil && timeout > 0 {
		// Perhaps nothing of this resource is missing.
		_ = c.advance(ctx, timeout)
	}
	return c.Store.WaitFor(ctx, rv, timeout)
}

// CanRevalidate reports whether Versions is supported, as far as is known, and useful, that is, whether the
// watch is not too slow.
func (c *Checker) CanRevalidate() bool { return !c.referrer.lacks() && !c.Lags() }
