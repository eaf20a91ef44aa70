package reflector

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/flight"
)

// Outage is what all reflectors of a Manager know about the server behind their source: whether it
// responds, and which program it is.
//
//	              an attempt of a reflector failed, and so did a probe
//	responding -------------------------------------------------------> down
//	    ^                                                                |
//	    +------------- a probe or an attempt succeeded ------------------+
//
// The end of an outage ends the pauses of all reflectors, because a pause that grew while nobody
// responded says nothing about a healthy server. A reflector that fails alone is left to its own
// backoff. It is safe for concurrent use.
type Outage struct {
	source  source.Source
	log     *slog.Logger
	ctx     context.Context // the Manager's
	spawn   func(func())    // runs probes; the Manager waits for it
	queries flight.Group[struct{}, string]

	probing atomic.Bool
	mu      struct {
		sync.Mutex
		began time.Time // when the outage began, zero while there is none
		ended time.Time // when the last outage ended
		// back is closed, and replaced, when an outage ends.
		back   chan struct{}
		server string // the last one known, "" before
	}
}

const (
	// probeInterval is the time between probes of a server that does not respond, lookTimeout the
	// timeout of each.
	probeInterval = 500 * time.Millisecond
	probeTimeout  = 2 * time.Second
	// returnSpread is the time over which reflectors are spread when the server responds again.
	returnSpread = 250 * time.Millisecond
	// recoveryTime is how long a server may still be starting after an outage: it may reject what
	// it will allow, and abort what it began. Until then pauses are at most recoveryDelay.
	recoveryTime  = 30 * time.Second
	recoveryDelay = time.Second
)

// NewOutage returns an Outage that lives until the end of ctx.
func NewOutage(ctx context.Context, source source.Source, spawn func(func()), log *slog.Logger) *Outage {
	o := &Outage{source: source, log: log, ctx: ctx, spawn: spawn}
	o.mu.back = make(chan struct{})
	return o
}

// state reports whether there is an outage and whether one ended recently. over is closed at the
// end of the present outage, or else of the next one.
func (o *Outage) state() (down, recovering bool, over <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.mu.began.IsZero(), time.Since(o.mu.ended) < recoveryTime, o.mu.back
}

// IsDown reports whether there is an outage.
func (o *Outage) IsDown() bool {
	down, _, _ := o.state()
	return down
}

// recordResponse records that the server has responded.
func (o *Outage) recordResponse() {
	o.mu.Lock()
	began := o.mu.began
	if !began.IsZero() {
		o.mu.began, o.mu.ended = time.Time{}, time.Now()
		close(o.mu.back)
		o.mu.back = make(chan struct{})
	}
	o.mu.Unlock()
	if !began.IsZero() {
		o.log.Info("upstream recovered", "seconds", time.Since(began).Seconds())
	}
}

// suspect starts a probe after an attempt of a reflector has failed.
func (o *Outage) suspect() {
	if o.ctx.Err() == nil && o.probing.CompareAndSwap(false, true) {
		o.spawn(o.probe)
	}
}

// probe probes the server until it responds.
func (o *Outage) probe() {
	defer o.probing.Store(false)
	for {
		_, _, over := o.state()
		_, err := o.queryOnce(o.ctx)
		switch {
		case errors.Is(err, source.ErrUnsupported):
			return // the reflectors find out
		case err == nil:
			o.recordResponse()
			return
		}
		o.mu.Lock()
		first := o.mu.began.IsZero() && o.ctx.Err() == nil
		if first {
			o.mu.began = time.Now()
		}
		o.mu.Unlock()
		if first {
			o.log.Warn("upstream unreachable", "error", err)
		}
		select {
		case <-time.After(probeInterval + time.Duration(jitter(int64(probeInterval/10)))):
		case <-over:
		case <-o.ctx.Done():
		}
		if down, _, _ := o.state(); !down || o.ctx.Err() != nil {
			return
		}
	}
}

// queryOnce makes one request for the program of the server. The result is "" if it does not say. A
// server that has responded before and now rejects the request is still starting.
func (o *Outage) queryOnce(ctx context.Context) (server string, err error) {
	ctx, cancel := source.WithTimeout(ctx, o.source, probeTimeout)
	defer cancel()
	server, err = o.source.Server(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.mu.server = server
	case source.IsRejected(err) && o.mu.server == "":
		err = nil
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		err = nil
	}
	return server, err
}

// Known returns the server as last known, and calls Ask if it was never known.
func (o *Outage) Known(ctx context.Context) string {
	if server := o.LastKnown(); server != "" {
		return server
	}
	return o.Query(ctx)
}

// LastKnown returns the server as last known, "" if it was never known.
func (o *Outage) LastKnown() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.server
}

// Query requests the program of the server, once for concurrent callers. It returns "" if the server
// does not say.
func (o *Outage) Query(ctx context.Context) string {
	server, _, err := o.queries.Do(ctx, struct{}{}, o.queryOnce)
	if err != nil {
		return ""
	}
	return server
}
