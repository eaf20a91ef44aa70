package h2

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/api"
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
	h := &conn{c: &edge.Conn{Shared: &s.Shared}, err: errClientLeft} // who reads it leaves at once
	h.queue.init(h)
	h.users.Store(int32(rounds) + 1) //nolint:gosec // small
	h.leaseTimer = time.AfterFunc(time.Hour, func() {})
	begin := func(turn uint64) { // as serve does
		h.turn.Store(turn)
		if !h.watched.Load() {
			h.watched.Store(true)
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
		h.seen.Store(turn)
		begin(turn)
		looks.Store(i + 1)
		for range i % 100 {
			_ = h.turn.Load()
		}
		over := h.turn.CompareAndSwap(turn, turn+1)
		if over {
			begin(turn + 2)
		}
		await(&looked, i+1)
		if over && h.turn.Load() == turn+2 && !h.watched.Load() {
			t.Fatalf("after %d looks nobody looks at the request that is served", i+1)
		}
	}
}
