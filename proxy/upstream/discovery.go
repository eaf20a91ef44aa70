package upstream

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/proxy/upstream/pool"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// Discovery knows which resources the upstream serves. What it read last counts until it is read
// again, whatever happens to the upstream. It is safe for concurrent use.
type Discovery struct {
	c     *Client
	known atomic.Pointer[discovered]
	// period is how often it is read, missPeriod how often at most a lookup that finds nothing leads
	// to a reading, and minPeriod the least time between the beginnings of two readings.
	period, missPeriod, minPeriod time.Duration

	mu struct {
		sync.Mutex
		// next is the reading that begins next, for callers that ask for it now; nil if there are none.
		// working tells that a goroutine sees to it.
		next    *reading
		working bool
		began   time.Time // of the last reading
		missed  time.Time // when a miss last led to a reading
	}
}

// reading is one reading of discovery.
type reading struct {
	done chan struct{}
	err  error // written before done is closed
}

// Discovery returns a new Discovery of the client's upstream, which knows nothing yet: Run or
// Refresh reads it.
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
		d.joinLocked()
	}
	return ServerResource{}, false
}

// Known is Lookup without a refresh.
func (d *Discovery) Known(gvr schema.GroupVersionResource) (ServerResource, bool) {
	if r, ok := d.known.Load().resources[gvr]; ok {
		return *r, true
	}
	return ServerResource{}, false
}

// Resources returns all known resources, in no order. They are shared and must not be modified.
func (d *Discovery) Resources() []ServerResource {
	known := d.known.Load().resources
	all := make([]ServerResource, 0, len(known))
	for _, r := range known {
		all = append(all, *r)
	}
	return all
}

// Refresh returns when discovery was read, by a reading that began after the call. Concurrent calls
// share one reading.
func (d *Discovery) Refresh(ctx context.Context) error {
	d.mu.Lock()
	r := d.joinLocked()
	d.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Run reads discovery now and periodically until ctx ends. It retries sooner after a failure.
func (d *Discovery) Run(ctx context.Context) {
	retry := d.minPeriod
	var failed pool.RateLimitedLog
	for {
		wait := d.period
		if err := d.Refresh(ctx); err == nil {
			retry = d.minPeriod
		} else if ctx.Err() == nil {
			failed.Warn(d.c.log, d.c.health.Now(), "discovery cannot be read", err)
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

// joinLocked returns the reading that begins next, and ensures that it does.
func (d *Discovery) joinLocked() *reading {
	if d.mu.next == nil {
		d.mu.next = &reading{done: make(chan struct{})}
	}
	r := d.mu.next
	if !d.mu.working {
		if d.mu.working = d.c.spawn(d.work); !d.mu.working {
			r.err = health.ErrClosed
			close(r.done)
			d.mu.next = nil
		}
	}
	return r
}

// work reads until no reading is asked for.
func (d *Discovery) work() {
	for {
		d.mu.Lock()
		if d.mu.next == nil {
			d.mu.working = false
			d.mu.Unlock()
			return
		}
		wait := time.Until(d.mu.began.Add(d.minPeriod))
		d.mu.Unlock()
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-d.c.ctx.Done():
			}
		}
		d.mu.Lock()
		r := d.mu.next
		d.mu.next, d.mu.began = nil, time.Now()
		d.mu.Unlock()
		r.err = d.read(d.c.ctx)
		close(r.done)
	}
}

// read reads discovery once.
func (d *Discovery) read(ctx context.Context) error {
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
