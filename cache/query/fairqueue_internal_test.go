package query

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestUsersTakeTurns checks that a user who needs many columns does not delay others for all of
// them, and that callers who leave give up their place.
func TestUsersTakeTurns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var all fairQueue
		all.init()
		leave, err := all.take(t.Context(), "first")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		record := func(who string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, who)
		}
		enqueue := func(ctx context.Context, user string) {
			go func() {
				leave, err := all.take(ctx, user)
				if err != nil {
					record("gone " + user)
					return
				}
				record(user)
				leave()
			}()
			synctest.Wait()
		}
		gone, cancel := context.WithCancel(t.Context())
		for range 4 {
			enqueue(t.Context(), "greedy")
			enqueue(gone, "greedy")
		}
		enqueue(gone, "other")
		enqueue(t.Context(), "modest")
		enqueue(t.Context(), "first")
		cancel()
		synctest.Wait()
		slices.Sort(order)
		if !slices.Equal(order, []string{"gone greedy", "gone greedy", "gone greedy", "gone greedy", "gone other"}) {
			t.Errorf("%q", order)
		}
		order = nil
		leave()
		synctest.Wait()
		if len(order) != 6 || order[0] != "greedy" || order[1] != "modest" {
			t.Errorf("%q", order)
		}
		if len(all.mu.users) != 0 || len(all.slot) != 0 {
			t.Errorf("%d users are left", len(all.mu.users))
		}
	})
}
