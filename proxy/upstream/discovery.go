package upstream

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/flight"
)

// Discovery holds the resources that the upstream serves. The last result counts until the next
// read, whatever happens to the upstream. It is safe for concurrent use.
type Discovery struct {
	c     *Client
	known atomic.Pointer[discovered]
	// period is how often it is read, missPeriod how often at most a lookup that finds nothing leads
	// to a reading, and minPeriod the least time between the beginnings of two readings.
	period, missPeriod, minPeriod time.Duration

	readings flight.Group[struct{}, struct{}]
	mu       struct {
		sync.Mutex
		began  time.Time // of the last reading
		missed time.Time // when a miss last led to a reading
	}
}

// Discovery returns a new, empty Discovery of the client's upstream: Run or Refresh reads it.
func (c *Client) Discovery() *Discovery {
	d := &Discovery{c: c, period: 5 * time.Minute, missPeriod: 10 * time.Second, minPeriod: time.Second}
	d.known.Store(&discovered{})
	return d
}

// Lookup returns what is known of a resource. It does not wait. If it finds nothing, a refresh may
// begin, so that a later call finds it. The result is shared and must not be modified.
func (d *Discovery) Lookup(gvr schema.GroupVersionResource) (ServerResource, bool) {
	if r, ok := d.Known(gvr); ok {
		return r, true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Sub(d.mu.missed) >= d.missPeriod {
		d.mu.missed = now
		d.c.spawn(func() { _ = d.Refresh(d.c.ctx) })
	}
	return ServerResource{}, false
}

// Known is Lookup without a refresh.
func (d *Discovery) Known(gvr schema.GroupVersionResource) (ServerResource, bool) {
	r, ok := d.known.Load().resources[gvr]
	return r, ok
}

// Refresh returns when discovery was read, by a reading that began after the call. Concurrent calls
// share one reading.
func (d *Discovery) Refresh(ctx context.Context) error {
	_, _, err := d.readings.Do(ctx, struct{}{}, func(ctx context.Context) (struct{}, error) { return struct{}{}, d.read(ctx) })
	return err
}

// Run reads discovery now and periodically until ctx ends. It retries sooner after a failure.
func (d *Discovery) Run(ctx context.Context) {
	retry := d.minPeriod
	failed := rate.Sometimes{Interval: errorLogPeriod}
	for {
		wait := d.period
		if err := d.Refresh(ctx); err == nil {
			retry = d.minPeriod
		} else if ctx.Err() == nil {
			failed.Do(func() { d.c.log.Warn("discovery cannot be read", "error", err) })
			wait = min(retry, d.period)
			retry *= 2
		}
		// Spread the load of many gateways.
		wait += rand.N(wait/10 + 1)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// read reads discovery once, minPeriod after the last reading began.
func (d *Discovery) read(ctx context.Context) error {
	d.mu.Lock()
	wait := time.Until(d.mu.began.Add(d.minPeriod))
	d.mu.Unlock()
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		case <-d.c.ctx.Done():
		}
	}
	d.mu.Lock()
	d.mu.began = time.Now()
	d.mu.Unlock()
	last := d.known.Load()
	known, err := d.c.discover(ctx, last)
	if err != nil {
		return err
	}
	d.known.Store(known)
	if len(known.resources) != len(last.resources) {
		d.c.log.Info("discovery read", "resources", len(known.resources), "before", len(last.resources))
	}
	return nil
}
