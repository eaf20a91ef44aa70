package authn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// TestUnverifiedTokensWaitForEachOtherOnly: while reviews hang, few of them are of unverified tokens,
// and a verified token is reviewed without waiting.
func TestUnverifiedTokensWaitForEachOtherOnly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, Options{UnverifiedTokens: 50})
		if _, err := byToken(t.Context(), a, janeToken); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // until it is to be reviewed again
		hang := make(chan struct{})
		reviewer.Hang(hang)
		ctx, cancel := context.WithCancel(t.Context())
		var flood sync.WaitGroup
		codes := make(chan int32, 200)
		for i := range 200 {
			flood.Go(func() {
				_, err := byToken(ctx, a, fmt.Sprint("random-", i))
				codes <- StatusError(err).ErrStatus.Code
			})
		}
		synctest.Wait()
		if n := reviewer.Count(); n != unverifiedReviews {
			t.Errorf("%d reviews of unknown tokens at a time, want %d", n, unverifiedReviews)
		}
		if n := len(codes); n != 150 {
			t.Errorf("%d of 200 were sent away, want 150", n)
		}
		known := make(chan error)
		go func() { _, err := byToken(ctx, a, janeToken); known <- err }()
		synctest.Wait()
		if n := reviewer.Count(); n != unverifiedReviews+1 {
			t.Errorf("the known token is not reviewed: %d reviews", n)
		}
		time.Sleep(unverifiedWait + time.Second)
		for range 200 - unverifiedReviews {
			if code := <-codes; code != 429 {
				t.Errorf("code %d, want 429", code)
			}
		}
		close(hang)
		if err := <-known; err != nil {
			t.Error(err)
		}
		flood.Wait()
		cancel()
		if n := a.tokens.unverified.requests.Load(); n != 0 {
			t.Errorf("%d places are not given back", n)
		}
	})
}

// TestRejectedTokensPushNothingOut: made-up tokens do not make accepted ones
// forgotten.
func TestRejectedTokensPushNothingOut(t *testing.T) {
	a, reviewer := newTokenAuthenticator(t, Options{Settings: review.Settings{CacheSize: 64}})
	if _, err := byToken(t.Context(), a, janeToken); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if _, err := byToken(t.Context(), a, fmt.Sprint("random-", i)); !errors.Is(err, ErrUnauthenticated) {
			t.Fatal(err)
		}
	}
	before := reviewer.Count()
	if _, err := byToken(t.Context(), a, janeToken); err != nil || reviewer.Count() != before {
		t.Errorf("the accepted token was reviewed again: %v", err)
	}
	if n := a.tokens.cached(); n > 2*64 {
		t.Errorf("%d answers are remembered", n)
	}
}
