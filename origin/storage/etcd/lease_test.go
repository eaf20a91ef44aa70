package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestLeases(t *testing.T) {
	var requested []int64
	l := &leases{grant: func(_ context.Context, seconds int64) (clientv3.LeaseID, error) {
		requested = append(requested, seconds)
		return clientv3.LeaseID(len(requested)), nil
	}}
	start := time.Now()
	get := func(ttl, at time.Duration) clientv3.LeaseID {
		t.Helper()
		id, err := l.get(t.Context(), ttl, start.Add(at))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	for _, tc := range []struct {
		ttl, at time.Duration
		want    clientv3.LeaseID
	}{
		{time.Hour, 0, 1},
		{time.Hour, 30 * time.Second, 1},
		{time.Hour, 59 * time.Second, 1},
		{time.Hour, 60 * time.Second, 2}, // the first would end too early
		{time.Hour, 70 * time.Second, 2},
		{15 * time.Second, 70 * time.Second, 3}, // too short to share
		{15 * time.Second, 70 * time.Second, 4},
		{time.Hour, 80 * time.Second, 2}, // still known
		{time.Minute, 80 * time.Second, 5},
		{59*time.Second + 1, 81 * time.Second, 5}, // rounded up
		{time.Minute, 83 * time.Second, 6},
		{time.Nanosecond, 83 * time.Second, 7},
	} {
		if id := get(tc.ttl, tc.at); id != tc.want {
			t.Errorf("%v at %v: lease %d, want %d", tc.ttl, tc.at, id, tc.want)
		}
	}
	if want := []int64{3660, 3660, 15, 15, 63, 63, 1}; !slices.Equal(requested, want) {
		t.Errorf("asked for %v, want %v", requested, want)
	}
	l.forget(6)
	if id := get(time.Minute, 83*time.Second); id != 8 {
		t.Errorf("a forgotten lease is used on: %d", id)
	}
}

func TestLeaseLimits(t *testing.T) {
	n := clientv3.LeaseID(0)
	l := &leases{grant: func(context.Context, int64) (clientv3.LeaseID, error) {
		n++
		return n, nil
	}}
	now := time.Now()
	keys := map[clientv3.LeaseID]int{}
	for range 2*maxLeaseKeys + 1 {
		id, err := l.get(t.Context(), time.Hour, now)
		if err != nil {
			t.Fatal(err)
		}
		keys[id]++
	}
	if keys[1] != maxLeaseKeys || keys[2] != maxLeaseKeys || keys[3] != 1 {
		t.Errorf("keys of leases: %v", keys)
	}
}

// TestLeaseAtOnce checks that concurrent callers share one lease, and that a failed grant fails
// only the caller that requested it.
func TestLeaseAtOnce(t *testing.T) {
	fail := errors.New("failed")
	var mu sync.Mutex
	requested := 0
	release := make(chan struct{})
	l := &leases{grant: func(context.Context, int64) (clientv3.LeaseID, error) {
		mu.Lock()
		requested++
		n := requested
		mu.Unlock()
		<-release
		if n == 1 {
			return 0, fail
		}
		return clientv3.LeaseID(n), nil
	}}
	now := time.Now()
	errs := make(chan error, 20)
	for range 20 {
		go func() {
			_, err := l.get(t.Context(), time.Hour, now)
			errs <- err
		}()
	}
	close(release)
	failed := 0
	for range 20 {
		if err := <-errs; err != nil {
			failed++
			if !errors.Is(err, fail) {
				t.Error(err)
			}
		}
	}
	if failed != 1 || requested != 2 {
		t.Errorf("%d failed, %d leases", failed, requested)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.get(ctx, 2*time.Hour, now); err != nil {
		t.Errorf("the one who asks decides about its context: %v", err)
	}
}
