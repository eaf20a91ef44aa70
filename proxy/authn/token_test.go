package authn

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/reviewtest"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// TestGatewayToken: it is nobody's else, is not sent to the cluster, and other tokens are reviewed as ever.
func TestGatewayToken(t *testing.T) {
	a, reviewer := newTokenAuthenticator(t, Options{GatewayToken: "own-token"})
	for token, want := range map[string]Source{"own-token": Gateway, janeToken: BearerToken} {
		id, err := byToken(t.Context(), a, token)
		if err != nil || id.Source != want || want == Gateway && id.Token != "" {
			t.Errorf("%s: %+v, %v, want %v", token, id, err, want)
		}
	}
	for _, token := range []string{"own-toke", "own-token2"} {
		if id, err := byToken(t.Context(), a, token); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: %+v, %v", token, id, err)
		}
	}
	if n := reviewer.Count(); n != 3 {
		t.Errorf("%d reviews, want 3", n)
	}
	r := &api.Request{Header: webSocketHeader("a," + inProtocol("own-token"))}
	r.Upgrade = r.Header.Get("Upgrade")
	if id, err := a.Authenticate(t.Context(), r); err != nil || id.Source != Gateway {
		t.Errorf("WebSocket: %+v, %v", id, err)
	}
	if none, _ := newTokenAuthenticator(t, Options{}); none.gatewayToken.is("") {
		t.Error("without a token of its own, none is one")
	}
}

// TestGatewayTokenOfAnother: it is refused without asking the cluster, which has no use for it, whether this gateway has a
// token of its own or not. A token that only begins so is somebody's.
func TestGatewayTokenOfAnother(t *testing.T) {
	own, another := NewGatewayToken(sha256.Sum256([]byte("own"))), NewGatewayToken(sha256.Sum256([]byte("another")))
	const named = "kubeweir-token-of-alice"
	for _, opts := range []Options{{GatewayToken: own}, {}} {
		a, reviewer := newTokenAuthenticator(t, opts)
		reviewer.Set(named, authenticationv1.UserInfo{Username: "alice"})
		if id, err := byToken(t.Context(), a, string(another)); !errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), "another gateway") {
			t.Errorf("%+v, %v", id, err)
		}
		if n := reviewer.Count(); n != 0 {
			t.Errorf("%d reviews, want none", n)
		}
		if id, err := byToken(t.Context(), a, named); err != nil || id.Source != BearerToken {
			t.Errorf("%+v, %v", id, err)
		}
	}
}

// newTokenAuthenticator knows janeToken.
func newTokenAuthenticator(t testing.TB, opts Options) (*Authenticator, *reviewtest.Tokens) {
	t.Helper()
	reviewer := &reviewtest.Tokens{}
	reviewer.Set(janeToken, authenticationv1.UserInfo{Username: "jane", Groups: []string{"devs"}})
	opts.TokenReviewer = reviewer
	a, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return a, reviewer
}

func byToken(ctx context.Context, a *Authenticator, token string) (*Identity, error) {
	return a.Authenticate(ctx, &api.Request{Header: api.Header{{Name: "Authorization", Value: "Bearer " + token}}})
}

func TestTokenCache(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, Options{})
		expect := func(token string, reviews int, valid bool) {
			t.Helper()
			if _, err := byToken(t.Context(), a, token); (err == nil) != valid {
				t.Errorf("err = %v, want valid = %v", err, valid)
			}
			if n := reviewer.Count(); n != reviews {
				t.Errorf("%d reviews so far, want %d", n, reviews)
			}
		}
		expect(janeToken, 1, true)
		expect("bad", 2, false)
		expect(janeToken, 2, true)
		expect("bad", 2, false)
		time.Sleep(2 * time.Second)
		expect("bad", 3, false)
		expect(janeToken, 3, true)
		time.Sleep(8 * time.Second)
		reviewer.Drop(janeToken)
		expect(janeToken, 4, false)
	})
}

func TestTokenReviewsAreShared(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, Options{})
		reviewer.Wait = make(chan struct{})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := byToken(t.Context(), a, janeToken); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // the first of them has its review under way
		gone, leave := context.WithCancel(t.Context())
		wg.Go(func() { // a client that leaves does not take the others with it
			if _, err := byToken(gone, a, janeToken); !errors.Is(err, context.Canceled) {
				t.Errorf("err = %v, want canceled", err)
			}
		})
		synctest.Wait()
		leave()
		synctest.Wait()
		close(reviewer.Wait)
		wg.Wait()
		if n := reviewer.Count(); n != 1 {
			t.Errorf("%d reviews, want 1", n)
		}
	})
}

func TestTokensWithoutUpstream(t *testing.T) {
	for _, test := range []struct {
		name    string
		err     error
		offline time.Duration
		code    int32 // of the answer while the upstream cannot be asked; 0: let in
	}{
		{"down", reviewtest.ErrDown, 0, 503},
		{"overloaded", apierrors.NewTooManyRequests("slow down", 1), 0, 503},
		{"starting", apierrors.NewServiceUnavailable("not yet"), 0, 503},
		{"not allowed to review", apierrors.NewForbidden(schema.GroupResource{Resource: "tokenreviews"}, "", errors.New("no")), time.Hour, 503},
		{"down, offline time", reviewtest.ErrDown, time.Hour, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				a, reviewer := newTokenAuthenticator(t, Options{Settings: review.Settings{OfflineTTL: test.offline}})
				if _, err := byToken(t.Context(), a, janeToken); err != nil {
					t.Fatal(err)
				}
				reviewer.Fail(test.err)
				time.Sleep(30 * time.Minute)
				_, err := byToken(t.Context(), a, janeToken)
				if test.code == 0 {
					if err != nil {
						t.Fatalf("a known token: %v", err)
					}
				} else if err == nil || StatusError(err).ErrStatus.Code != test.code {
					t.Errorf("err = %v, want %d", err, test.code)
				}
				if _, err := byToken(t.Context(), a, "unknown"); err == nil {
					t.Error("an unknown token was let in")
				}
				time.Sleep(time.Hour)
				if _, err := byToken(t.Context(), a, janeToken); err == nil {
					t.Error("let in after the offline time")
				}
				reviewer.Fail(nil)
				if _, err := byToken(t.Context(), a, janeToken); err != nil {
					t.Errorf("upstream back: %v", err)
				}
			})
		})
	}
}

// TestRevokedTokenOffline: the upstream's no ends the offline time of a token.
func TestRevokedTokenOffline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, Options{Settings: review.Settings{OfflineTTL: time.Hour}})
		_, _ = byToken(t.Context(), a, janeToken)
		time.Sleep(time.Minute)
		reviewer.Drop(janeToken)
		_, _ = byToken(t.Context(), a, janeToken)
		time.Sleep(time.Minute)
		reviewer.Fail(reviewtest.ErrDown)
		if _, err := byToken(t.Context(), a, janeToken); err == nil {
			t.Error("let in though the upstream refused it before it went away")
		}
	})
}

// TestTokensAreShared: neither a user with many tokens nor tokens that are made up have those of
// others reviewed again, or forgotten.
func TestTokensAreShared(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const size = 32 * 16
		a, reviewer := newTokenAuthenticator(t, Options{SuccessTTL: time.Minute, Settings: review.Settings{CacheSize: size, OfflineTTL: time.Hour}})
		if _, err := byToken(t.Context(), a, janeToken); err != nil {
			t.Fatal(err)
		}
		for i := range 4 * size {
			token := fmt.Sprint("of-loud-", i)
			reviewer.Set(token, authenticationv1.UserInfo{Username: "loud"})
			if _, err := byToken(t.Context(), a, token); err != nil {
				t.Fatal(err)
			}
			if _, err := byToken(t.Context(), a, fmt.Sprint("made-up-", i)); err == nil {
				t.Fatal("a token that is made up is good")
			}
		}
		if n := a.tokens.results.Len(); n > size {
			t.Errorf("%d tokens are remembered, %d may be", n, size)
		}
		reviewer.Fail(reviewtest.ErrDown)
		time.Sleep(30 * time.Minute)
		if id, err := byToken(t.Context(), a, janeToken); err != nil || !id.Offline {
			t.Errorf("%v", err)
		}
		if a.tokens.results.Find(a.tokens.key(janeToken)) == nil {
			t.Error("the token is not known any more")
		}
	})
}

func TestTokenIsNeverShown(t *testing.T) {
	a, _ := newTokenAuthenticator(t, Options{})
	id, err := byToken(t.Context(), a, janeToken)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	text := slog.New(slog.NewTextHandler(&out, nil))
	for _, v := range []any{id, *id, id.Token, []any{id.Token}, map[string]any{"t": id.Token}} {
		log.Info("x", "v", v)
		text.Info("x", "v", v)
		fmt.Fprintf(&out, "%v %+v %#v %s %q\n", v, v, v, v, v)
		if b, err := json.Marshal(v); err == nil {
			out.Write(b)
		}
	}
	if strings.Contains(out.String(), janeToken) {
		t.Errorf("the token is shown: %s", out.String())
	}
	for e := range a.tokens.results.All() {
		if strings.Contains(fmt.Sprintf("%+v %+v", e, e.Value.user), janeToken) {
			t.Error("the token is in the cache")
		}
	}
	_, err = byToken(t.Context(), a, "refused-token")
	if err == nil || strings.Contains(err.Error(), "refused-token") {
		t.Errorf("err = %v", err)
	}
}

func BenchmarkAuthenticateToken(b *testing.B) {
	a, reviewer := newTokenAuthenticator(b, Options{SuccessTTL: time.Hour})
	token := strings.Repeat("x", 1000)
	reviewer.Set(token, authenticationv1.UserInfo{Username: "jane"})
	header := api.Header{{Name: "Accept", Value: "application/json"}, {Name: "User-Agent", Value: "kubectl"},
		{Name: "Accept-Encoding", Value: "gzip"}, {Name: "Authorization", Value: "Bearer " + token}}
	buf := make(api.Header, 0, len(header))
	b.ReportAllocs()
	for b.Loop() {
		r := &api.Request{Header: append(buf[:0], header...)}
		if _, err := a.Authenticate(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
