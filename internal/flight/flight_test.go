package flight

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLateCallersShareTheNextCall(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var g Group[string, int]
		calls := 0
		gate := make(chan struct{})
		run := func(context.Context) (int, error) {
			calls++
			n := calls
			<-gate
			return n, nil
		}
		results := make([]int, 5)
		by := make([]Round, 5)
		var wg sync.WaitGroup
		call := func(i int) {
			wg.Go(func() { results[i], by[i], _ = g.Do(t.Context(), "k", run) })
			synctest.Wait()
		}
		for i := range results {
			call(i)
		}
		gate <- struct{}{} // first round
		synctest.Wait()
		gate <- struct{}{} // the one that the four others share
		wg.Wait()
		if results[0] != 1 {
			t.Errorf("first caller got call %d", results[0])
		}
		for i := 1; i < 5; i++ {
			if results[i] != 2 {
				t.Errorf("late caller %d got call %d, begun before its own", i, results[i])
			}
		}
		if calls != 2 {
			t.Errorf("%d calls, want 2", calls)
		}
		if !by[0].First || by[0].Part() != 1 || !by[1].First || by[2].First || by[1].Part() != 0.25 || by[4].Part() != 0.25 {
			t.Errorf("by %+v", by)
		}
	})
}

func TestLastToLeaveCancels(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var g Group[int, int]
		ended := make(chan error, 1)
		run := func(ctx context.Context) (int, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return 0, ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _, _ = g.Do(ctx, 1, run) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("call ended with %v", err)
		}
		synctest.Wait()
		if len(g.mu.keys) != 0 {
			t.Errorf("%d keys left", len(g.mu.keys))
		}
	})
}

func TestKeysAreIndependent(t *testing.T) {
	var g Group[int, int]
	for i := range 3 {
		got, _, err := g.Do(t.Context(), i, func(context.Context) (int, error) { return i * i, nil })
		if err != nil || got != i*i {
			t.Errorf("key %d: %d, %v", i, got, err)
		}
	}
}

func TestPanicIsAnError(t *testing.T) {
	var g Group[int, int]
	if _, _, err := g.Do(t.Context(), 1, func(context.Context) (int, error) { panic("boom") }); err == nil {
		t.Error("no error")
	}
}

func TestAbandonedRoundIsNotJoined(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var g Group[int, int]
		gate := make(chan struct{})
		run := func(ctx context.Context) (int, error) {
			<-gate
			return 7, ctx.Err()
		}
		done := make(chan struct{})
		go func() { _, _, _ = g.Do(t.Context(), 1, run); close(done) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, _ = g.Do(ctx, 1, run) // opens the next round and leaves it
		got := make(chan error, 1)
		go func() { _, _, err := g.Do(t.Context(), 1, run); got <- err }()
		synctest.Wait()
		close(gate)
		<-done
		if err := <-got; err != nil {
			t.Errorf("joined an abandoned round: %v", err)
		}
	})
}
