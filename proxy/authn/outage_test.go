package authn

import (
	"encoding/base64"
	"errors"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/reviewtest"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// TestExpiredTokenOffline: a token that has expired is not made to live longer.
func TestExpiredTokenOffline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, Options{Settings: review.Settings{OfflineTTL: time.Hour}})
		expires := time.Now().Add(10 * time.Minute)
		claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, expires.Unix()))
		token := "head." + claims + ".signature"
		reviewer.Set(token, authenticationv1.UserInfo{Username: "jane"})
		request := func() (*Identity, error) { return byToken(t.Context(), a, token) }
		if id, err := request(); err != nil || id.Offline {
			t.Fatal(id, err)
		}
		reviewer.Fail(reviewtest.ErrDown)
		time.Sleep(9 * time.Minute)
		if id, err := request(); err != nil || !id.Offline {
			t.Error(id, err)
		}
		time.Sleep(time.Minute)
		if id, err := request(); err == nil {
			t.Errorf("%v is let in with a token that has expired", id)
		}
	})
}

func TestExpiryOf(t *testing.T) {
	encode := func(s string) string { return "x." + base64.RawURLEncoding.EncodeToString([]byte(s)) + ".y" }
	for token, want := range map[string]int64{
		"opaque": 0, "a.b": 0, "a.!.c": 0, encode("no"): 0, encode("{}"): 0, encode(`{"exp":"1"}`): 0, encode(`{"exp":-1}`): 0,
		encode(`{"exp":1700000000}`): 1700000000, encode(`{"exp":1700000000.5}`): 1700000000,
	} {
		got := expiryOf(token)
		if want == 0 && !got.IsZero() || want != 0 && got.Unix() != want {
			t.Errorf("%s: %v", token, got)
		}
	}
}

// TestOneSlowResponseIsNoOutage: while the upstream can be reached, everybody else is asked
// about, although one question is left unanswered, which is asked again in a while only.
func TestOneSlowResponseIsNoOutage(t *testing.T) {
	reachable := func() bool { return true }
	bubble.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, Options{Settings: review.Settings{OfflineTTL: time.Hour, Reachable: reachable}})
		reviewer.Set("joe", authenticationv1.UserInfo{Username: "joe"})
		request := func(token string) (*Identity, error) { return byToken(t.Context(), a, token) }
		for _, token := range []string{janeToken, "joe"} {
			if _, err := request(token); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(11 * time.Second)
		reviewer.Fail(reviewtest.ErrDown)
		for range 3 {
			if id, err := request("joe"); err != nil || !id.Offline {
				t.Fatal(id, err)
			}
		}
		if n := reviewer.Count(); n != 4 {
			t.Errorf("%d reviews", n)
		}
		reviewer.Fail(nil)
		reviewer.Drop(janeToken)
		reviewer.Drop("joe")
		if id, err := request(janeToken); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("a token that was revoked: %v, %v", id, err)
		}
		time.Sleep(review.StaleFor)
		if id, err := request("joe"); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("after the pause: %v, %v", id, err)
		}
	})
}

// TestOfflineLastsNoLongerThanItsTime, however often an older answer is given.
func TestOfflineLastsNoLongerThanItsTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, Options{Settings: review.Settings{OfflineTTL: time.Minute, Reachable: func() bool { return true }}})
		began := time.Now()
		if _, err := byToken(t.Context(), a, janeToken); err != nil {
			t.Fatal(err)
		}
		reviewer.Fail(reviewtest.ErrDown)
		for time.Since(began) < 2*time.Minute {
			id, err := byToken(t.Context(), a, janeToken)
			if good, after := err == nil, time.Since(began); good != (after < 70*time.Second) {
				t.Fatalf("after %v: %v, %v", after, id, err)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestTokensOverRestart: what a token's user has comes with it.
func TestTokensOverRestart(t *testing.T) {
	info := authenticationv1.UserInfo{Username: "u", UID: "1", Groups: []string{"a", "system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v", "w"}}}
	was := userOfReview(&info)
	again := was.review()
	if is := userOfReview(&again); is.digest != was.digest {
		t.Errorf("%+v, was %+v", is.info, was.info)
	}
}

// TestTokensOfOtherAudiences: what a token was good for is asked anew when it has to be good
// for something else.
func TestTokensOfOtherAudiences(t *testing.T) {
	a, err := New(Options{TokenReviewer: &reviewtest.Tokens{}, Audiences: []string{"a"}, Settings: review.Settings{OfflineTTL: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	for _, audiences := range [][]string{{"a"}, {"b"}, nil} {
		words := &SavedTokens{Secret: make([]byte, 32), Audiences: audiences, Tokens: []SavedToken{{Hash: make([]byte, 32), Decided: time.Now()}}}
		a.tokens.results.DropAll()
		a.Restore(words)
		if n := a.tokens.results.Len(); (n == 1) != (len(audiences) == 1 && audiences[0] == "a") {
			t.Errorf("%q: %d tokens", audiences, n)
		}
	}
}

// TestSavedTokensAreShared: a user with many tokens takes no room on disk from others.
func TestSavedTokensAreShared(t *testing.T) {
	tokens := make([]SavedToken, 100)
	for i := range tokens {
		tokens[i].User.Username = "greedy"
	}
	tokens = append(tokens, SavedToken{User: authenticationv1.UserInfo{Username: "few"}})
	if fit, rest := review.Fit(tokens, 10*review.JSONSize(tokens[0]), func(t SavedToken) (string, int) { return t.User.Username, review.JSONSize(t) }); len(fit) < 9 || len(rest) < 90 || fit[0].User.Username == fit[1].User.Username {
		t.Errorf("%d fit, %d do not", len(fit), len(rest))
	}
}
