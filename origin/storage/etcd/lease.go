package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// As kube-apiserver (storage/etcd3/lease_manager.go): a lease serves the keys of the next 5% of
// their time to live, at most a minute and a thousand keys. A lease costs etcd much more than a key
// on it.
const (
	leaseReusePart = 20
	maxLeaseReuse  = 60
	maxLeaseKeys   = 1000
)

// leases hands out leases for times to live, the same one to several keys. Only the newest lease
// that can be shared is remembered, since nearly all keys with a time to live are events. The zero
// value with grant set is ready. It is safe for concurrent use.
type leases struct {
	// grant asks etcd for a lease of so many seconds.
	grant func(ctx context.Context, seconds int64) (clientv3.LeaseID, error)

	mu   sync.Mutex
	last lease // guarded by mu
}

type lease struct {
	id      clientv3.LeaseID
	seconds int64     // to live, of its keys
	end     time.Time // counted from before the request, so that it is not overestimated
	keys    int
}

// get returns a lease that lasts at least ttl, rounded up to seconds, and hardly longer. Callers
// wait while another one asks etcd: most of them will share the lease.
func (l *leases) get(ctx context.Context, ttl time.Duration, now time.Time) (clientv3.LeaseID, error) {
	seconds := max(1, int64((ttl+time.Second-1)/time.Second))
	alive := func(seconds int64) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.seconds == seconds && l.last.keys < maxLeaseKeys && alive(seconds).Before(l.last.end) {
		l.last.keys++
		return l.last.id, nil
	}
	extra := min(seconds/leaseReusePart, maxLeaseReuse)
	id, err := l.grant(ctx, seconds+extra)
	if err == nil && extra > 0 { // otherwise too short to be shared
		l.last = lease{id: id, seconds: seconds, end: alive(seconds + extra), keys: 1}
	}
	return id, err
}

// forget makes sure that a lease is not handed out again.
func (l *leases) forget(id clientv3.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.id == id {
		l.last = lease{}
	}
}
