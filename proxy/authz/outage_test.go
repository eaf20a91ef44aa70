package authz

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/reviewtest"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// fakeRules allow everything, or nothing, and count how often they are asked.
type fakeRules struct {
	allow     bool
	requested int
}

func (r *fakeRules) Allow(user.Info, Attributes) bool {
	r.requested++
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
				access := &reviewtest.Access{Allow: reviewtest.Nothing}
				if test.last == allowed {
					access.Allow = reviewtest.Everything
				}
				o := Options{AccessReviewer: access, Settings: review.Settings{OfflineTTL: time.Hour}}
				if test.rules != nil {
					o.Rules = test.rules
				}
				a := New(o)
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
				access.Fail(reviewtest.ErrDown)
				d, err := a.Authorize(t.Context(), jane, listPods)
				got := unknown
				switch {
				case err == nil && d.Allowed:
					got = allowed
				case err == nil:
					got = denied
				case !errors.Is(err, review.ErrUnavailable):
					t.Error(err)
				}
				if got != test.want || err == nil && !d.Offline {
					t.Errorf("%s (%+v), want %s", got, d, test.want)
				}
			})
		})
	}
}

// TestRulesAreUsedInOutagesOnly, and not at all where nobody is served offline.
func TestRulesAreUsedInOutagesOnly(t *testing.T) {
	rules := &fakeRules{allow: true}
	access := &reviewtest.Access{Allow: reviewtest.Everything}
	a := New(Options{AccessReviewer: access, Rules: rules, Settings: review.Settings{OfflineTTL: time.Hour}})
	if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || !d.Allowed || rules.requested > 0 {
		t.Errorf("%+v, %v, rules asked %d times", d, err, rules.requested)
	}
	access.Fail(reviewtest.ErrDown)
	never := New(Options{AccessReviewer: access, Rules: rules})
	if d, err := never.Authorize(t.Context(), jane, listPods); err == nil || rules.requested > 0 {
		t.Errorf("%+v, %v, rules asked %d times", d, err, rules.requested)
	}
}

// TestBackFromTheOutage: who has an older answer asks again as soon as the upstream can be
// reached.
func TestBackFromTheOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &reviewtest.Access{Allow: reviewtest.Everything}
		var reachable atomic.Bool
		a := New(Options{AccessReviewer: access, Settings: review.Settings{OfflineTTL: time.Hour, Reachable: reachable.Load}})
		if _, err := a.Authorize(t.Context(), jane, listPods); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		access.Fail(reviewtest.ErrDown)
		for range 3 {
			if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || !d.Allowed || !d.Offline {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		access.Fail(nil)
		access.Set(reviewtest.Nothing)
		reachable.Store(true)
		if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || d.Allowed || d.Offline {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// TestRejectionBesideSelectors: what the upstream refused last is not got by asking for a
// part of it, which rules would grant.
func TestRejectionBesideSelectors(t *testing.T) {
	access := &reviewtest.Access{Allow: reviewtest.Nothing}
	a := New(Options{AccessReviewer: access, Rules: &fakeRules{allow: true}, Settings: review.Settings{OfflineTTL: time.Hour}})
	if _, err := a.Authorize(t.Context(), jane, listPods); err != nil {
		t.Fatal(err)
	}
	access.Fail(reviewtest.ErrDown)
	byLabel, byName, other := listPods, listPods, listPods
	byLabel.LabelSelector = "!none"
	byName.FieldSelector, byName.Name = "metadata.name=a", "a"
	other.Namespace, other.LabelSelector = "other", "!none"
	for _, test := range []struct {
		what Attributes
		want bool
	}{{byLabel, false}, {byName, false}, {other, true}} {
		if d, err := a.Authorize(t.Context(), jane, test.what); d.Allowed != test.want || !test.want && !errors.Is(err, review.ErrUnavailable) {
			t.Errorf("%+v: %+v, %v", test.what, d, err)
		}
	}
}

// TestOneSlowResponseIsNoOutage: while the upstream can be reached, everybody else is asked
// about, although one question is left unanswered, which is asked again in a while only.
func TestOneSlowResponseIsNoOutage(t *testing.T) {
	reachable := func() bool { return true }
	bubble.Test(t, func(t *testing.T) {
		access := &reviewtest.Access{Allow: reviewtest.Everything}
		a := New(Options{AccessReviewer: access, Settings: review.Settings{OfflineTTL: time.Hour, Reachable: reachable}})
		joe := authn.NewUser(&user.DefaultInfo{Name: "joe"})
		for _, u := range []*authn.User{jane, joe} {
			if _, err := a.Authorize(t.Context(), u, listPods); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(11 * time.Second)
		access.Set(reviewtest.Nothing)
		access.Fail(reviewtest.ErrDown)
		for range 3 {
			if d, err := a.Authorize(t.Context(), joe, listPods); err != nil || !d.Offline {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		if n := access.Count(); n != 4 { // a review is tried twice
			t.Errorf("%d reviews", n)
		}
		access.Fail(nil)
		if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || d.Allowed {
			t.Errorf("jane, whom the upstream refuses now: %+v, %v", d, err)
		}
		time.Sleep(review.StaleFor)
		if d, err := a.Authorize(t.Context(), joe, listPods); err != nil || d.Allowed {
			t.Errorf("joe after the pause: %+v, %v", d, err)
		}
	})
}
