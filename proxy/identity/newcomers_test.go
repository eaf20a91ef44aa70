package identity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestUnknownTokensWaitForEachOtherOnly: while reviews hang, those of tokens never
// seen good are few, and a known token is reviewed as ever.
func TestUnknownTokensWaitForEachOtherOnly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, AuthenticatorOptions{Newcomers: 50})
		if _, err := byToken(t.Context(), a, janeToken); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // until it is to be reviewed again
		hang := make(chan struct{})
		reviewer.mu.Lock()
		reviewer.wait, reviewer.reviews = hang, 0
		reviewer.mu.Unlock()
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
		if n := reviewer.count(); n != newcomerReviews {
			t.Errorf("%d reviews of unknown tokens at a time, want %d", n, newcomerReviews)
		}
		if n := len(codes); n != 150 {
			t.Errorf("%d of 200 were sent away, want 150", n)
		}
		known := make(chan error)
		go func() { _, err := byToken(ctx, a, janeToken); known <- err }()
		synctest.Wait()
		if n := reviewer.count(); n != newcomerReviews+1 {
			t.Errorf("the known token is not reviewed: %d reviews", n)
		}
		time.Sleep(newcomerWait + time.Second)
		for range 200 - newcomerReviews {
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
		if n := a.tokens.newcomers.requests.Load(); n != 0 {
			t.Errorf("%d places are not given back", n)
		}
	})
}

// TestReviewsOfOneUserDelayNobodyElse: a user who asks for many objects by name has
// as many permissions reviewed.
func TestReviewsOfOneUserDelayNobodyElse(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &fakeAccess{allow: everything, latency: time.Second}
		a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access})
		get := func(who, name string) error {
			_, err := a.Authorize(t.Context(), &user.DefaultInfo{Name: who}, Attributes{Verb: "get", Resource: "pods", Name: name})
			return err
		}
		codes := make(chan int32, 1000)
		var flood sync.WaitGroup
		for i := range 1000 {
			flood.Go(func() {
				err := get("greedy", fmt.Sprint("pod-", i))
				if err == nil {
					codes <- 200
				} else {
					codes <- StatusError(err).ErrStatus.Code
				}
			})
		}
		synctest.Wait()
		if n := access.count(); n != userReviews {
			t.Errorf("%d reviews at a time, want %d", n, userReviews)
		}
		began := time.Now()
		if err := get("modest", "pod"); err != nil || time.Since(began) != time.Second {
			t.Errorf("another user waited %v: %v", time.Since(began), err)
		}
		flood.Wait()
		close(codes)
		for code := range codes {
			if code != 200 && code != 429 {
				t.Errorf("code %d", code)
			}
		}
		if n := len(a.turns.mu.users); n != 0 {
			t.Errorf("%d users are left over", n)
		}
	})
}

// TestRefusedTokensPushNothingOut: made-up tokens do not make accepted ones
// forgotten.
func TestRefusedTokensPushNothingOut(t *testing.T) {
	a, reviewer := newTokenAuthenticator(t, AuthenticatorOptions{CacheSize: 64})
	if _, err := byToken(t.Context(), a, janeToken); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if _, err := byToken(t.Context(), a, fmt.Sprint("random-", i)); !errors.Is(err, ErrUnauthenticated) {
			t.Fatal(err)
		}
	}
	before := reviewer.count()
	if _, err := byToken(t.Context(), a, janeToken); err != nil || reviewer.count() != before {
		t.Errorf("the accepted token was reviewed again: %v", err)
	}
	if n := a.tokens.remember(); n > 2*64 {
		t.Errorf("%d answers are remembered", n)
	}
}

// TestReviewsTellNobodyWhoTheGatewayIs: what the upstream says of the gateway's own
// requests is not for clients.
func TestReviewsTellNobodyWhoTheGatewayIs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		refusal := func(resource string) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New(`User "the-gateway" cannot create`))
		}
		for _, test := range []struct {
			err  error
			code int32
		}{
			{refusal("tokenreviews"), 503},
			{apierrors.NewUnauthorized("the-gateway"), 503},
			{apierrors.NewServiceUnavailable("the-gateway"), 503},
			{apierrors.NewInternalError(errors.New("the-gateway")), 503},
			{apierrors.NewBadRequest("the-gateway"), 500},
			{apierrors.NewGenericServerResponse(404, "create", schema.GroupResource{}, "", "the-gateway", 0, true), 500},
			{errors.New("dial tcp the-gateway: connection refused"), 503},
		} {
			a, reviewer := newTokenAuthenticator(t, AuthenticatorOptions{ReviewTimeout: time.Second})
			reviewer.fail(test.err)
			_, err := byToken(t.Context(), a, janeToken)
			access := &fakeAccess{allow: func(*authorizationv1.SubjectAccessReviewSpec) bool { return true }, err: test.err}
			_, err2 := NewAuthorizer(AuthorizerOptions{AccessReviewer: access}).Authorize(t.Context(), jane, listPods)
			for _, err := range []error{err, err2} {
				status := StatusError(err).ErrStatus
				if status.Code != test.code || strings.Contains(status.Message, "the-gateway") {
					t.Errorf("%v is answered %d %q, want %d and no name", test.err, status.Code, status.Message, test.code)
				}
				if test.code == 503 && (status.Details == nil || status.Details.RetryAfterSeconds == 0) {
					t.Errorf("%v is answered without Retry-After", test.err)
				}
			}
		}
	})
}

// TestReviewsEndInTime: neither the second try nor a review that is under way
// already adds to what a request waits.
func TestReviewsEndInTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &fakeAccess{latency: time.Hour}
		a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access})
		var requests sync.WaitGroup
		for i := range 3 {
			requests.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				began := time.Now()
				if _, err := a.Authorize(t.Context(), jane, listPods); !errors.Is(err, ErrUnavailable) {
					t.Error(err)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("a request waited %v", took)
				}
			})
		}
		requests.Wait()
	})
}
