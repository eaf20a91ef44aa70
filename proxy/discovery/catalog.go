package discovery

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// Upstream reads what the cluster serves. See upstream.Client.
type Upstream interface {
	// DiscoveryDocument reads the aggregated discovery document at a path, /api or /apis, and its
	// ETag. The document is nil if it still has the given ETag.
	DiscoveryDocument(ctx context.Context, path, etag string) (*apidiscoveryv2.APIGroupDiscoveryList, string, error)
	// Version returns the last body of /version, nil before the first.
	Version() []byte
	// Background is for the refreshes that a miss starts.
	Background() health.Background
}

// Catalog holds the resources that the upstream serves. The last result counts until the next
// read, whatever happens to the upstream. It is safe for concurrent use.
type Catalog struct {
	upstream   Upstream
	background health.Background
	known      atomic.Pointer[discovered]
	version    atomic.Pointer[[]byte] // of an earlier process, nil if it is not known
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

// NewCatalog returns an empty Catalog of an upstream: Run or Refresh reads it.
func NewCatalog(u Upstream) *Catalog {
	c := &Catalog{upstream: u, background: u.Background(), period: 5 * time.Minute, missPeriod: 10 * time.Second, minPeriod: time.Second}
	c.known.Store(&discovered{})
	return c
}

// Lookup returns what is known of a resource. It does not wait. If it finds nothing, a refresh may
// begin, so that a later call finds it. The result is shared and must not be modified.
func (c *Catalog) Lookup(gvr schema.GroupVersionResource) (ServerResource, bool) {
	if r, ok := c.Known(gvr); ok {
		return r, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.mu.missed) >= c.missPeriod {
		c.mu.missed = now
		c.background.Spawn(func() { _ = c.Refresh(c.background.Context) })
	}
	return ServerResource{}, false
}

// Known is Lookup without a refresh.
func (c *Catalog) Known(gvr schema.GroupVersionResource) (ServerResource, bool) {
	r, ok := c.known.Load().resources[gvr]
	return r, ok
}

// Refresh returns when discovery was read, by a reading that began after the call. Concurrent calls
// share one reading.
func (c *Catalog) Refresh(ctx context.Context) error {
	_, _, err := c.readings.Do(ctx, struct{}{}, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.read(ctx) })
	return err
}

// Run reads discovery now and periodically until ctx ends. It retries sooner after a failure.
func (c *Catalog) Run(ctx context.Context) {
	retry := c.minPeriod
	failed := rate.Sometimes{Interval: 10 * time.Second}
	for {
		wait := c.period
		if err := c.Refresh(ctx); err == nil {
			retry = c.minPeriod
		} else if ctx.Err() == nil {
			failed.Do(func() { c.background.Log.Warn("discovery cannot be read", "error", err) })
			wait = min(retry, c.period)
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
func (c *Catalog) read(ctx context.Context) error {
	c.mu.Lock()
	wait := time.Until(c.mu.began.Add(c.minPeriod))
	c.mu.Unlock()
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		case <-c.background.Context.Done():
		}
	}
	c.mu.Lock()
	c.mu.began = time.Now()
	c.mu.Unlock()
	last := c.known.Load()
	known, err := c.discover(ctx, last)
	if err != nil {
		return err
	}
	c.known.Store(known)
	if len(known.resources) != len(last.resources) {
		c.background.Log.Info("discovery read", "resources", len(known.resources), "before", len(last.resources))
	}
	return nil
}

// discover reads what the server serves. Group versions whose own server does not respond keep the
// resources that they had in last.
func (c *Catalog) discover(ctx context.Context, last *discovered) (*discovered, error) {
	known := newDiscovered(time.Now())
	for _, path := range []string{"/api", "/apis"} {
		doc := last.documents[path]
		etag := ""
		if doc != nil {
			etag = doc.etag
		}
		list, etag, err := c.upstream.DiscoveryDocument(ctx, path, etag)
		if err != nil {
			return nil, err
		}
		if list != nil {
			doc = &document{etag, list}
		}
		known.add(path, doc, last)
	}
	return known, nil
}

// Documents returns what was read last.
func (c *Catalog) Documents() Documents {
	known := c.known.Load()
	docs := Documents{At: known.at}
	if doc := known.documents["/api"]; doc != nil {
		docs.Core, docs.CoreETag = doc.list, doc.etag
	}
	if doc := known.documents["/apis"]; doc != nil {
		docs.Groups, docs.GroupsETag = doc.list, doc.etag
	}
	if docs.Version = c.upstream.Version(); docs.Version == nil && c.version.Load() != nil {
		docs.Version = *c.version.Load()
	}
	return docs
}

// Restore adopts what an earlier process read, unless something was read already. It counts until
// discovery is read. It reports whether it was of any use.
func (c *Catalog) Restore(docs *Documents) bool {
	if docs.Core == nil || docs.Groups == nil {
		return false
	}
	known := newDiscovered(docs.At)
	known.restored = true
	known.add("/api", &document{etag: docs.CoreETag, list: docs.Core}, &discovered{})
	known.add("/apis", &document{etag: docs.GroupsETag, list: docs.Groups}, &discovered{})
	if docs.Version != nil {
		version := []byte(docs.Version)
		c.version.CompareAndSwap(nil, &version)
	}
	last := c.known.Load()
	return last.at.IsZero() && c.known.CompareAndSwap(last, known)
}

// Read reports whether this process has read discovery.
func (c *Catalog) Read() bool {
	known := c.known.Load()
	return !known.at.IsZero() && !known.restored
}
