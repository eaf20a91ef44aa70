package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// As kube-apiserver (storage/etcd3/lease_manager.go): a lease serves the keys of the next 5% of their
	// time to live, at most a minute and a thousand keys. A lease costs etcd much more than a key on it.
	leaseReusePart = 20
	maxLeaseReuse  = 60
	maxLeaseKeys   = 1000
	// maxLeases bounds how many times to live are remembered; there are hardly more in an API (events, endpoints).
	maxLeases = 16
)

// leases hands out leases for times to live, the same to several keys. The zero
// value with grant set is ready. It is safe for concurrent use.
type leases struct {
	// grant asks etcd for a lease of so many seconds.
	grant func(ctx context.Context, seconds int64) (clientv3.LeaseID, error)

	mu   sync.Mutex
	last map[int64]*lease // by seconds to live; guarded by mu
}

type lease struct {
	// ready is closed when the request for the lease is over; id and err are valid then.
	ready   chan struct{}
	id      clientv3.LeaseID
	err     error
	seconds int64     // asked of etcd
	begun   time.Time // before it was asked for, so that expiry is not overestimated
	keys    int       // guarded by leases.mu
}

// get returns a lease that lasts at least ttl, rounded up to seconds, and hardly longer.
func (l *leases) get(ctx context.Context, ttl time.Duration, now time.Time) (clientv3.LeaseID, error) {
	seconds := max(1, int64((ttl+time.Second-1)/time.Second))
	for {
		one, mine := l.take(seconds, now)
		if mine {
			one.id, one.err = l.grant(ctx, one.seconds)
			if one.err != nil {
				l.forget(one)
			}
			close(one.ready)
			return one.id, one.err
		}
		select {
		case <-one.ready:
			if one.err == nil {
				return one.id, nil
			}
			// It failed for the one who asked, perhaps by that one's context only.
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// take finds a lease to share, or returns a new one that the caller must ask for.
func (l *leases) take(seconds int64, now time.Time) (one *lease, mine bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.last[seconds]; one != nil && one.keys < maxLeaseKeys && now.Add(time.Duration(seconds)*time.Second).Before(one.begun.Add(time.Duration(one.seconds)*time.Second)) {
		one.keys++
		return one, false
	}
	one = &lease{ready: make(chan struct{}), seconds: seconds + min(seconds/leaseReusePart, maxLeaseReuse), begun: now, keys: 1}
	if one.seconds == seconds {
		return one, true // too short to be shared
	}
	if l.last == nil {
		l.last = make(map[int64]*lease)
	}
	if _, known := l.last[seconds]; !known && len(l.last) >= maxLeases {
		l.evict()
	}
	l.last[seconds] = one
	return one, true
}

// evict forgets the lease that was asked for first. l.mu is held.
func (l *leases) evict() {
	oldest := int64(-1)
	for seconds, one := range l.last {
		if oldest < 0 || one.begun.Before(l.last[oldest].begun) {
			oldest = seconds
		}
	}
	delete(l.last, oldest)
}

// forget sees to it that a lease is handed out no more.
func (l *leases) forget(bad *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for seconds, one := range l.last {
		if one == bad {
			delete(l.last, seconds)
		}
	}
}

// forgetID is forget for one who knows the id only.
func (l *leases) forgetID(id clientv3.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for seconds, one := range l.last {
		select {
		case <-one.ready:
			if one.id == id {
				delete(l.last, seconds)
			}
		default:
		}
	}
}

func (e *Engine) grantLease(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	started := time.Now()
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	resp, err := e.client.Grant(ctx, seconds)
	e.metrics.requests.WithLabelValues("lease").Observe(time.Since(started).Seconds())
	if err != nil {
		return 0, err
	}
	return resp.ID, nil
}
