package identity

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/reason"
)

// fakeRules allow everything, or nothing, and count how often they are asked.
type fakeRules struct {
	allow bool
	asked int
}

func (r *fakeRules) Allow(user.Info, Attributes) bool {
	r.asked++
	return r.allow
}

// TestOfflineDecisions: nothing is wider than the upstream's last word.
func TestOfflineDecisions(t *testing.T) {
	const allowed, denied, unknown = "allowed", "denied", "unknown"
	for _, test := range []struct {
		name    string
		last    string // what the upstream said last
		changed bool   // an RBAC object, after that
		waited  time.Duration
		rules   *fakeRules // nil: none are held
		want    string
	}{
		{"the last word", allowed, false, time.Minute, &fakeRules{}, allowed},
		{"a refusal beside rules that allow", denied, false, time.Minute, &fakeRules{allow: true}, denied},
		{"a refusal before a change, beside rules that allow", denied, true, time.Minute, &fakeRules{allow: true}, denied},
		{"a right taken away before the outage", allowed, true, time.Minute, &fakeRules{}, unknown},
		{"a right changed before the outage, without rules", allowed, true, time.Minute, nil, unknown},
		{"a right changed, and still there", allowed, true, time.Minute, &fakeRules{allow: true}, allowed},
		{"never asked, rules allow", "", false, time.Minute, &fakeRules{allow: true}, allowed},
		{"never asked, rules do not", "", false, time.Minute, &fakeRules{}, unknown},
		{"never asked, no rules", "", false, time.Minute, nil, unknown},
		{"the last word is too old", allowed, false, time.Hour + time.Second, &fakeRules{}, unknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				access := &fakeAccess{allow: nothing}
				if test.last == allowed {
					access.allow = everything
				}
				o := AuthorizerOptions{AccessReviewer: access, OfflineTTL: time.Hour}
				if test.rules != nil {
					o.Rules = test.rules
				}
				a := NewAuthorizer(o)
				time.Sleep(time.Minute)
				if test.last != "" {
					if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || d.Offline {
						t.Fatalf("%+v, %v", d, err)
					}
				}
				if test.changed {
					time.Sleep(time.Second)
					a.Invalidate()
				}
				time.Sleep(test.waited)
				access.fail(errDown)
				d, err := a.Authorize(t.Context(), jane, listPods)
				got := unknown
				switch {
				case err == nil && d.Allowed:
					got = allowed
				case err == nil:
					got = denied
				case !errors.Is(err, ErrUnavailable):
					t.Error(err)
				}
				if got != test.want || err == nil && !d.Offline {
					t.Errorf("%s (%+v), want %s", got, d, test.want)
				}
			})
		})
	}
}

// TestRulesAreAskedInOutagesOnly, and not at all where nobody is served offline.
func TestRulesAreAskedInOutagesOnly(t *testing.T) {
	rules := &fakeRules{allow: true}
	access := &fakeAccess{allow: everything}
	a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access, OfflineTTL: time.Hour, Rules: rules})
	if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || !d.Allowed || rules.asked > 0 {
		t.Errorf("%+v, %v, rules asked %d times", d, err, rules.asked)
	}
	access.fail(errDown)
	never := NewAuthorizer(AuthorizerOptions{AccessReviewer: access, Rules: rules})
	if d, err := never.Authorize(t.Context(), jane, listPods); err == nil || rules.asked > 0 {
		t.Errorf("%+v, %v, rules asked %d times", d, err, rules.asked)
	}
}

// TestBackFromTheOutage: who has an older answer asks again as soon as the upstream can be
// reached.
func TestBackFromTheOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &fakeAccess{allow: everything}
		var reachable atomic.Bool
		a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access, OfflineTTL: time.Hour, Reachable: reachable.Load})
		if _, err := a.Authorize(t.Context(), jane, listPods); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		access.fail(errDown)
		for range 3 {
			if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || !d.Allowed || !d.Offline {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		access.fail(nil)
		access.set(nothing)
		reachable.Store(true)
		if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || d.Allowed || d.Offline {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// TestExpiredTokenOffline: a token that has expired is not made to live longer.
func TestExpiredTokenOffline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, AuthenticatorOptions{OfflineTTL: time.Hour})
		expires := time.Now().Add(10 * time.Minute)
		claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, expires.Unix()))
		token := "head." + claims + ".signature"
		reviewer.set(token, authenticationv1.UserInfo{Username: "jane"})
		ask := func() (*Identity, error) { return byToken(t.Context(), a, token) }
		if id, err := ask(); err != nil || id.Offline {
			t.Fatal(id, err)
		}
		reviewer.fail(errDown)
		time.Sleep(9 * time.Minute)
		if id, err := ask(); err != nil || !id.Offline {
			t.Error(id, err)
		}
		time.Sleep(time.Minute)
		if id, err := ask(); err == nil {
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

// TestOneSlowAnswerIsNoOutage: while the upstream can be reached, everybody else is asked
// about, although one question is left unanswered, which is asked again in a while only.
func TestOneSlowAnswerIsNoOutage(t *testing.T) {
	reachable := func() bool { return true }
	t.Run("decisions", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			access := &fakeAccess{allow: everything}
			a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access, OfflineTTL: time.Hour, Reachable: reachable})
			joe := NewUser(&user.DefaultInfo{Name: "joe"})
			for _, u := range []*User{jane, joe} {
				if _, err := a.Authorize(t.Context(), u, listPods); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(11 * time.Second)
			access.set(nothing)
			access.fail(errDown)
			for range 3 {
				if d, err := a.Authorize(t.Context(), joe, listPods); err != nil || !d.Offline {
					t.Fatalf("%+v, %v", d, err)
				}
			}
			if n := access.count(); n != 4 { // a review is tried twice
				t.Errorf("%d reviews", n)
			}
			access.fail(nil)
			if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || d.Allowed {
				t.Errorf("jane, whom the upstream refuses now: %+v, %v", d, err)
			}
			time.Sleep(outagePause)
			if d, err := a.Authorize(t.Context(), joe, listPods); err != nil || d.Allowed {
				t.Errorf("joe after the pause: %+v, %v", d, err)
			}
		})
	})
	t.Run("tokens", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			a, reviewer := newTokenAuthenticator(t, AuthenticatorOptions{OfflineTTL: time.Hour, Reachable: reachable})
			reviewer.set("joe", authenticationv1.UserInfo{Username: "joe"})
			ask := func(token string) (*Identity, error) { return byToken(t.Context(), a, token) }
			for _, token := range []string{janeToken, "joe"} {
				if _, err := ask(token); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(11 * time.Second)
			reviewer.fail(errDown)
			for range 3 {
				if id, err := ask("joe"); err != nil || !id.Offline {
					t.Fatal(id, err)
				}
			}
			if n := reviewer.count(); n != 4 {
				t.Errorf("%d reviews", n)
			}
			reviewer.fail(nil)
			reviewer.drop(janeToken)
			reviewer.drop("joe")
			if id, err := ask(janeToken); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("a token that was revoked: %v, %v", id, err)
			}
			time.Sleep(outagePause)
			if id, err := ask("joe"); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("after the pause: %v, %v", id, err)
			}
		})
	})
}

// TestOfflineLastsNoLongerThanItsTime, however often an older answer is given.
func TestOfflineLastsNoLongerThanItsTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, reviewer := newTokenAuthenticator(t, AuthenticatorOptions{OfflineTTL: time.Minute, Reachable: func() bool { return true }})
		began := time.Now()
		if _, err := byToken(t.Context(), a, janeToken); err != nil {
			t.Fatal(err)
		}
		reviewer.fail(errDown)
		for time.Since(began) < 2*time.Minute {
			id, err := byToken(t.Context(), a, janeToken)
			if good, after := err == nil, time.Since(began); good != (after < 70*time.Second) {
				t.Fatalf("after %v: %v, %v", after, id, err)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestRefusalBesideSelectors: what the upstream refused last is not got by asking for a
// part of it, which rules would grant.
func TestRefusalBesideSelectors(t *testing.T) {
	access := &fakeAccess{allow: nothing}
	a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access, OfflineTTL: time.Hour, Rules: &fakeRules{allow: true}})
	if _, err := a.Authorize(t.Context(), jane, listPods); err != nil {
		t.Fatal(err)
	}
	access.fail(errDown)
	byLabel, byName, other := listPods, listPods, listPods
	byLabel.LabelSelector = "!none"
	byName.FieldSelector, byName.Name = "metadata.name=a", "a"
	other.Namespace, other.LabelSelector = "other", "!none"
	for _, test := range []struct {
		what Attributes
		want bool
	}{{byLabel, false}, {byName, false}, {other, true}} {
		if d, err := a.Authorize(t.Context(), jane, test.what); d.Allowed != test.want || !test.want && !errors.Is(err, ErrUnavailable) {
			t.Errorf("%+v: %+v, %v", test.what, d, err)
		}
	}
}

// TestWatchesAfterTheOutage: watches that went on by what the upstream said last are asked
// about as soon as it answers.
func TestWatchesAfterTheOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var reachable atomic.Bool
		reachable.Store(true)
		access := &fakeAccess{allow: everything}
		auth, reviewer := newTokenAuthenticator(t, AuthenticatorOptions{OfflineTTL: time.Hour, Reachable: reachable.Load})
		a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access, OfflineTTL: time.Hour, Reachable: reachable.Load})
		b := &watchBed{t: t, access: access, tokens: reviewer, a: a, auth: auth,
			watches: NewWatches(WatchesOptions{Authorizer: a, Authenticator: auth})}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.watches.Run(ctx) })
		defer running.Wait()
		defer stop()

		id, err := byToken(t.Context(), auth, janeToken)
		if err != nil {
			t.Fatal(err)
		}
		s := &Subject{Identity: id, User: id.User}
		joe := b.subject(named("joe"))
		before, ofJoe := b.open(s, watchPods), b.open(joe, watchPods)
		reachable.Store(false)
		reviewer.fail(errDown)
		access.fail(errDown)
		time.Sleep(90 * time.Second)
		during := b.open(joe, watchPods)
		time.Sleep(200 * time.Millisecond)
		for _, o := range []*openWatch{before, ofJoe, during} {
			b.expect(o, reason.NotEnded)
		}
		reviewer.drop(janeToken)
		access.set(only("jane"))
		reviewer.fail(nil)
		access.fail(nil)
		reachable.Store(true)
		time.Sleep(2 * time.Second)
		b.expect(before, reason.CredentialInvalid)
		b.expect(ofJoe, reason.PermissionRevoked)
		b.expect(during, reason.PermissionRevoked)
	})
}
