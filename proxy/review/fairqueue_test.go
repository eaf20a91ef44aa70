package review

import (
	"context"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFairQueueForgetsUsers: nothing is left of users without callers.
func TestFairQueueForgetsUsers(t *testing.T) {
	q := FairQueue[string]{PerUser: UserReviews}
	leave, err := q.Enter(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	for range UserReviews - 1 {
		if _, err := q.Enter(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
	}
	last, err := q.Enter(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Enter(ended, "b"); err == nil {
		t.Error("there was room for one more")
	}
	leave()
	last()
	if n := len(q.mu.users); n != 1 || q.mu.users["b"].callers != UserReviews-1 {
		t.Errorf("%d users are left over", n)
	}
}
