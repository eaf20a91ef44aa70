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
	"github.com/kubeweir/kubeweir/internal/reviewtest"
	"github.com/kubeweir/kubeweir/proxy/review"
	authenticationv1 "k8s.io/api/authentication/v1"
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

// TestLocalTokensDoNotWait checks that tokens of which others cannot say anything pass while reviews hang.
func TestLocalTokensDoNotWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		local := &reviewtest.Tokens{}
		local.Set("local", authenticationv1.UserInfo{Username: "node"})
		a, reviewer := newTokenAuthenticator(t, Options{UnverifiedTokens: 5, LocalTokenReviewer: local})
		hang := make(chan struct{})
		reviewer.Hang(hang)
		var flood sync.WaitGroup
		for i := range 10 {
			flood.Go(func() { _, _ = byToken(t.Context(), a, fmt.Sprint("random-", i)) })
		}
		synctest.Wait()
		for range 2 {
			if id, err := byToken(t.Context(), a, "local"); err != nil || id.User.GetName() != "node" {
				t.Errorf("%+v, %v", id, err)
			}
		}
		if n := local.Count(); n != 11 {
			t.Errorf("%d local reviews, want one of each token", n)
		}
		local.Drop("local")
		time.Sleep(time.Minute)
		if _, err := byToken(t.Context(), a, "local"); err == nil {
			t.Error("a revoked token is accepted")
		}
		close(hang)
		flood.Wait()
	})
}

// TestUndeterminedTokens checks that a failure of an authenticator is not taken for a rejection.
func TestUndeterminedTokens(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, Options{})
		id, err := byToken(t.Context(), a, janeToken)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		reviewer.Fail(fmt.Errorf("%w: the webhook failed", ErrUndetermined))
		if _, err := a.Revalidate(t.Context(), id); err == nil || errors.Is(err, ErrUnauthenticated) {
			t.Errorf("a watch sees %v, want that it is unknown", err)
		}
		before := reviewer.Count()
		if _, err := byToken(t.Context(), a, janeToken); StatusError(err).ErrStatus.Code != 401 {
			t.Errorf("a request gets %v, want 401", err)
		}
		if n := reviewer.Count() - before; n != 1 {
			t.Errorf("%d reviews for a request, want 1", n)
		}
		reviewer.Fail(nil)
		if _, err := byToken(t.Context(), a, janeToken); err != nil {
			t.Errorf("when the webhook is back: %v", err)
		}
	})
}
