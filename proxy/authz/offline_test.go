package authz

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/reviewtest"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// rulesBut allow everything but what is refused.
type rulesBut func(Attributes) bool

func (r rulesBut) Allow(_ user.Info, a Attributes) bool { return !r(a) }

// TestDenialsCoverMore: another action on what the upstream denied last is not allowed by rules.
func TestDenialsCoverMore(t *testing.T) {
	everywhere := listPods
	everywhere.Namespace = ""
	with := func(a Attributes, change func(*Attributes)) Attributes { change(&a); return a }
	anotherToken := authn.NewUser(&user.DefaultInfo{Name: jane.GetName(), Groups: jane.GetGroups(), Extra: map[string][]string{"id": {"2"}}})
	none := func(Attributes) bool { return false }
	for _, test := range []struct {
		name      string
		rejected  Attributes
		rules     func(Attributes) bool // that do not grant
		who       *authn.User
		requested Attributes
		want      bool
	}{
		{"another verb", listPods, none, jane, with(listPods, func(a *Attributes) { a.Verb = "watch" }), false},
		{"another version", listPods, none, jane, with(listPods, func(a *Attributes) { a.APIVersion = "v2" }), false},
		{"one object", listPods, none, jane, with(listPods, func(a *Attributes) { a.Verb, a.Name = "get", "a" }), false},
		{"a part", listPods, none, jane, with(listPods, func(a *Attributes) { a.LabelSelector = "!none" }), false},
		{"the whole", with(listPods, func(a *Attributes) { a.LabelSelector = "!none" }), none, jane, listPods, false},
		{"by another token", listPods, none, anotherToken, listPods, false},
		{"all namespaces", listPods, none, jane, everywhere, false},
		{"another namespace", listPods, none, jane, with(listPods, func(a *Attributes) { a.Namespace = "other" }), true},
		{"another resource", listPods, none, jane, with(listPods, func(a *Attributes) { a.Resource = "nodes" }), true},
		{"another subresource", listPods, none, jane, with(listPods, func(a *Attributes) { a.Subresource = "log" }), true},
		{"somebody else", listPods, none, named("joe"), listPods, true},
		{"one of all, as rules would have", everywhere, func(a Attributes) bool { return a.Namespace == "" }, jane, listPods, true},
		{"one of all, which rules would have granted", everywhere, none, jane, listPods, false},
		{"large", with(listPods, func(a *Attributes) { a.LabelSelector = strings.Repeat("a", maxKeyBytes) }), none, jane, listPods, false},
		{"large, of all", with(everywhere, func(a *Attributes) { a.LabelSelector = strings.Repeat("a", maxKeyBytes) }), func(a Attributes) bool { return a.Namespace == "" }, jane, listPods, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				access := &reviewtest.Access{Allow: reviewtest.Nothing}
				a := New(Options{AccessReviewer: access, Rules: rulesBut(test.rules), Settings: review.Settings{OfflineTTL: time.Hour}})
				if _, err := a.Authorize(t.Context(), jane, test.rejected); err != nil {
					t.Fatal(err)
				}
				access.Fail(reviewtest.ErrDown)
				d, err := a.Authorize(t.Context(), test.who, test.requested)
				if d.Allowed != test.want || !test.want && !errors.Is(err, review.ErrUnavailable) {
					t.Errorf("%+v, %v", d, err)
				}
			})
		})
	}
}

// TestDenialsEnd when the upstream allows the same.
func TestDenialsEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &reviewtest.Access{Allow: reviewtest.Nothing}
		a := New(Options{AccessReviewer: access, Rules: &fakeRules{allow: true}, Settings: review.Settings{OfflineTTL: time.Hour}})
		watchPods := listPods
		watchPods.Verb = "watch"
		for _, allow := range []func(*authorizationv1.SubjectAccessReviewSpec) bool{reviewtest.Nothing, reviewtest.Everything} {
			access.Set(allow)
			time.Sleep(time.Minute)
			if _, err := a.Authorize(t.Context(), jane, listPods); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			access.Fail(reviewtest.ErrDown)
			if d, _ := a.Authorize(t.Context(), jane, watchPods); d.Allowed != allow(nil) {
				t.Errorf("%+v", d)
			}
			access.Fail(nil)
		}
	})
}

// TestOfflineDecisionsAreShared: a user with many decisions evicts none of others, and an evicted
// denial is no permission.
func TestOfflineDecisionsAreShared(t *testing.T) {
	bubble.Test(t, func(t *testing.T) { // a review that fails is tried again after a while
		access := &reviewtest.Access{Allow: reviewtest.Nothing}
		a := New(Options{AccessReviewer: access, Rules: &fakeRules{allow: true}, Settings: review.Settings{OfflineTTL: time.Hour, CacheSize: 64}})
		request := func(u *authn.User, name string) (Decision, error) {
			what := listPods
			what.Verb, what.Name, what.Namespace = "get", name, name
			return a.Authorize(t.Context(), u, what)
		}
		few := []*authn.User{named("few"), named("fewer"), named("fewest")}
		for _, u := range few {
			for i := range 4 {
				if _, err := request(u, fmt.Sprint(i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		greedy := named("greedy")
		for i := range 1000 {
			if _, err := request(greedy, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if n := a.denials.len(); n != 64 {
			t.Errorf("%d words", n)
		}
		access.Fail(reviewtest.ErrDown)
		a.decisions.DropAll()
		for _, u := range few {
			for i := range 4 {
				if d, err := request(u, fmt.Sprint(i)); err != nil || d.Allowed || !d.Offline {
					t.Errorf("%s: %+v, %v", u.GetName(), d, err)
				}
			}
		}
		for i := range 1000 {
			if d, _ := request(greedy, fmt.Sprint(i)); d.Allowed {
				t.Fatalf("what was refused is allowed: %d", i)
			}
		}
		if d, err := request(few[0], "else"); err != nil || !d.Allowed {
			t.Errorf("somebody else by rules: %+v, %v", d, err)
		}
	})
}

// saved is what is kept over a restart.
type saved struct {
	authn.SavedTokens
	SavedDecisions
}

const janeToken = "jane-secret-token"

// newTokenAuthenticator knows janeToken.
func newTokenAuthenticator(t testing.TB, opts authn.Options) (*authn.Authenticator, *reviewtest.Tokens) {
	t.Helper()
	reviewer := &reviewtest.Tokens{}
	reviewer.Set(janeToken, authenticationv1.UserInfo{Username: "jane", Groups: []string{"devs"}})
	opts.TokenReviewer = reviewer
	a, err := authn.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return a, reviewer
}

func byToken(ctx context.Context, a *authn.Authenticator, token string) (*authn.Identity, error) {
	return a.Authenticate(ctx, &api.Request{Header: api.Header{{Name: "Authorization", Value: "Bearer " + token}}})
}

// TestDecisionsSurviveRestart: another process uses the upstream's last decisions for the rest of
// their time.
func TestDecisionsSurviveRestart(t *testing.T) {
	for _, test := range []struct {
		name  string
		after time.Duration // it was said
		known bool
		which func(*saved)
	}{
		{"at once", 0, true, nil},
		{"within the time", 50 * time.Minute, true, nil},
		{"after the time", 61 * time.Minute, false, nil},
		{"of the future", -2 * time.Hour, false, nil},
		{"of another secret", 0, false, func(w *saved) { w.Secret = make([]byte, 32); w.Decisions = nil }},
		{"damaged", 0, false, func(w *saved) {
			w.Tokens[0].Hash = nil
			for i := range w.Decisions {
				w.Decisions[i].User = nil
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				changes := 0
				access := &reviewtest.Access{Allow: reviewtest.Only("jane")}
				auth, reviewer := newTokenAuthenticator(t, authn.Options{Settings: review.Settings{OfflineTTL: time.Hour, OnChange: func() { changes++ }}})
				a := New(Options{AccessReviewer: access, Settings: review.Settings{OfflineTTL: time.Hour, OnChange: func() { changes++ }}})
				time.Sleep(time.Minute)
				joe := named("joe")
				large := listPods
				large.LabelSelector = strings.Repeat("a", maxKeyBytes)
				for range 2 { // the second time is no news
					id, err := byToken(t.Context(), auth, janeToken)
					if err != nil {
						t.Fatal(err)
					}
					for _, u := range []*authn.User{id.User, joe} {
						for _, what := range []Attributes{listPods, large} {
							if _, err := a.Authorize(t.Context(), u, what); err != nil {
								t.Fatal(err)
							}
						}
					}
					time.Sleep(time.Minute)
				}
				if changes != 5 {
					t.Errorf("%d changes", changes)
				}
				words := &saved{}
				auth.Save(&words.SavedTokens, 1<<20)
				a.Save(&words.SavedDecisions, 1<<20)
				content, err := json.Marshal(words)
				if err != nil || strings.Contains(string(content), janeToken) {
					t.Fatalf("%s, %v", content, err)
				}
				store := &saved{}
				if err := json.Unmarshal(content, store); err != nil {
					t.Fatal(err)
				}
				for i := range store.Decisions {
					store.Decisions[i].Decided = store.Decisions[i].Decided.Add(-test.after)
				}
				for i := range store.Tokens {
					store.Tokens[i].Decided = store.Tokens[i].Decided.Add(-test.after)
				}
				if test.which != nil {
					test.which(store)
				}

				reviewer.Fail(reviewtest.ErrDown)
				access.Fail(reviewtest.ErrDown)
				again, err := authn.New(authn.Options{TokenReviewer: reviewer, Settings: review.Settings{OfflineTTL: time.Hour}})
				if err != nil {
					t.Fatal(err)
				}
				b := New(Options{AccessReviewer: access, Settings: review.Settings{OfflineTTL: time.Hour}})
				again.Restore(&store.SavedTokens)
				b.Restore(&store.SavedDecisions)
				id, err := byToken(t.Context(), again, janeToken)
				if (err == nil && id.Offline && id.User.GetName() == "jane") != test.known {
					t.Fatalf("%v, %v", id, err)
				}
				if !test.known {
					return
				}
				for _, what := range []Attributes{listPods, large} {
					if d, err := b.Authorize(t.Context(), id.User, what); err != nil || !d.Allowed || !d.Offline {
						t.Errorf("jane: %+v, %v", d, err)
					}
					if d, err := b.Authorize(t.Context(), joe, what); err != nil || d.Allowed {
						t.Errorf("joe: %+v, %v", d, err)
					}
				}
				b.Invalidate()
				if d, err := b.Authorize(t.Context(), id.User, listPods); err == nil {
					t.Errorf("a permission after RBAC objects have changed: %+v", d)
				}
				if d, err := b.Authorize(t.Context(), joe, listPods); err != nil || d.Allowed {
					t.Errorf("a refusal after RBAC objects have changed: %+v, %v", d, err)
				}
				again.Forget()
				b.Forget()
				if id, err := byToken(t.Context(), again, janeToken); err == nil {
					t.Errorf("a token that is forgotten: %v", id)
				}
				if d, err := b.Authorize(t.Context(), joe, listPods); err == nil {
					t.Errorf("a refusal that is forgotten: %+v", d)
				}
			})
		})
	}
}

// TestSavedDecisionsAreBounded: without room for all decisions permissions are left out, and a denial
// that is left out is no permission in the other process.
func TestSavedDecisionsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &reviewtest.Access{Allow: reviewtest.Only("jane")}
		a := New(Options{AccessReviewer: access, Settings: review.Settings{OfflineTTL: time.Hour}})
		for i := range 100 {
			for _, u := range []*authn.User{jane, named("joe")} {
				what := listPods
				what.Namespace = fmt.Sprint(i)
				if _, err := a.Authorize(t.Context(), u, what); err != nil {
					t.Fatal(err)
				}
			}
		}
		words := &SavedDecisions{}
		a.Save(words, 50*(256+30))
		if n := len(words.Decisions); n < 30 || n > 60 || words.Decisions[0].Allowed {
			t.Errorf("%d words", n)
		}
		access.Fail(reviewtest.ErrDown)
		b := New(Options{AccessReviewer: access, Rules: &fakeRules{allow: true}, Settings: review.Settings{OfflineTTL: time.Hour}})
		b.Restore(words)
		for i := range 100 {
			what := listPods
			what.Namespace = fmt.Sprint(i)
			if d, _ := b.Authorize(t.Context(), named("joe"), what); d.Allowed {
				t.Errorf("what was refused in %d is allowed", i)
			}
			if d, err := b.Authorize(t.Context(), jane, what); err != nil || !d.Allowed {
				t.Errorf("what was allowed in %d: %+v, %v", i, d, err)
			}
		}
	})
}

// TestSavedDecisionsAreShared: a user with many denials takes no room on disk from others.
func TestSavedDecisionsAreShared(t *testing.T) {
	access := &reviewtest.Access{Allow: reviewtest.Only("jane")}
	a := New(Options{AccessReviewer: access, Settings: review.Settings{OfflineTTL: time.Hour}})
	request := func(a *Authorizer, u *authn.User, name string) (Decision, error) {
		what := listPods
		what.Verb, what.Name = "get", name
		return a.Authorize(t.Context(), u, what)
	}
	few := []*authn.User{jane, named("few")}
	for _, u := range few {
		if _, err := request(a, u, "a"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 200 {
		if _, err := request(a, named("greedy"), fmt.Sprintf("%0*d", maxKeyBytes/2, i)); err != nil {
			t.Fatal(err)
		}
	}
	const size = 50 << 10
	words := &SavedDecisions{}
	a.Save(words, size)
	if written, err := json.Marshal(words); err != nil || len(written) > size {
		t.Errorf("%d bytes, %v", len(written), err)
	}
	access.Fail(reviewtest.ErrDown)
	b := New(Options{AccessReviewer: access, Rules: &fakeRules{allow: true}, Settings: review.Settings{OfflineTTL: time.Hour}})
	b.Restore(words)
	for _, u := range few {
		if d, err := request(b, u, "a"); err != nil || d.Allowed != (u == jane) {
			t.Errorf("%s: %+v, %v", u.GetName(), d, err)
		}
	}
	if d, _ := request(b, named("greedy"), "b"); d.Allowed {
		t.Error("rules decide where refusals are missing")
	}
}

// TestLargeAttributesAreShortened: little of large attributes is kept, and they allow nothing.
func TestLargeAttributesAreShortened(t *testing.T) {
	for _, test := range []struct {
		name      string
		requested Attributes
	}{
		{"namespace", Attributes{ResourceRequest: true, Verb: "get", APIVersion: "v1", Resource: "pods", Namespace: strings.Repeat("n", 60<<10)}},
		{"path", Attributes{Verb: "get", Path: "/" + strings.Repeat("p", 60<<10)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				access := &reviewtest.Access{Allow: reviewtest.Nothing}
				options := Options{AccessReviewer: access, Rules: &fakeRules{allow: true}, Settings: review.Settings{OfflineTTL: time.Hour}}
				a := New(options)
				if _, err := a.Authorize(t.Context(), jane, test.requested); err != nil {
					t.Fatal(err)
				}
				words := &SavedDecisions{}
				a.Save(words, 1<<20)
				if written, err := json.Marshal(words); err != nil || len(written) > 4<<10 || len(words.Decisions) != 1 {
					t.Errorf("%d words of %d bytes, %v", len(words.Decisions), len(written), err)
				}
				for _, d := range a.denials.mu.users[jane.GetName()].byKey {
					if n := d.attributes.Size(); n > maxKeyBytes {
						t.Errorf("%d bytes are remembered", n)
					}
				}
				access.Fail(reviewtest.ErrDown)
				b := New(options)
				b.Restore(words)
				another := test.requested
				another.Verb = "watch"
				for _, a := range []*Authorizer{a, b} {
					a.decisions.DropAll()
					for _, what := range []Attributes{test.requested, another} {
						if d, _ := a.Authorize(t.Context(), jane, what); d.Allowed {
							t.Errorf("%s is allowed", what.Verb)
						}
					}
				}
			})
		})
	}
}
