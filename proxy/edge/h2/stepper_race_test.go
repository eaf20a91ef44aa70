package h2

import (
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// TestHTTP2StepperGoesOn: a look that finds a slow request which is answered at that moment leaves the
// next, which has begun by then, to further looks.
func TestHTTP2StepperGoesOn(t *testing.T) {
	rounds := int64(soak.Cases(500, 20_000))
	s, err := edgetest.NewServer(edge.Options{Handler: edgetest.HandlerFunc(func(context.Context, *api.Request) *api.Response { return nil })})
	if err != nil {
		t.Fatal(err)
	}
	near, _ := net.Pipe()
	h := newConn(edge.NewConn(&s.Shared, near, api.ListenerSidecar))
	h.err = errClientLeft            // whoever reads it leaves at once
	h.users.Store(int32(rounds) + 1) //nolint:gosec // small
	h.lease.timer = time.AfterFunc(time.Hour, func() {})
	begin := func(turn uint64) { // as serve does
		h.lease.turn.Store(turn)
		if !h.lease.watched.Load() {
			h.lease.watched.Store(true)
		}
	}
	// Nobody gives up the processor: the two are to meet within nanoseconds.
	var looks, looked atomic.Int64
	await := func(n *atomic.Int64, i int64) {
		for spins := 1; n.Load() < i; spins++ {
			if spins%1000 == 0 {
				runtime.Gosched()
			}
		}
	}
	go func() {
		for i := range rounds {
			await(&looks, i+1)
			h.checkLease()
			looked.Store(i + 1)
		}
	}()
	for i := range rounds {
		turn := uint64(4*i + 1) //nolint:gosec // not negative
		h.lease.seen.Store(turn)
		begin(turn)
		looks.Store(i + 1)
		for range i % 100 {
			_ = h.lease.turn.Load()
		}
		over := h.lease.turn.CompareAndSwap(turn, turn+1)
		if over {
			begin(turn + 2)
		}
		await(&looked, i+1)
		if over && h.lease.turn.Load() == turn+2 && !h.lease.watched.Load() {
			t.Fatalf("after %d looks nobody looks at the request that is served", i+1)
		}
	}
}
