package revocation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/reviewtest"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/visible"
	"github.com/kubeweir/kubeweir/proxy/review"
)

var watchPods = authz.Attributes{ResourceRequest: true, Verb: "watch", APIVersion: "v1", Resource: "pods"}

// watchBed is a running Watches in a synctest bubble.
type watchBed struct {
	t       *testing.T
	access  *reviewtest.Access
	tokens  *reviewtest.Tokens
	a       *authz.Authorizer
	auth    *authn.Authenticator
	watches *Watches
}

// inWatchBed runs a test with reviewtest.Everything allowed at first.
func inWatchBed(t *testing.T, opts Options, test func(*watchBed)) {
	bubble.Test(t, func(t *testing.T) {
		b := &watchBed{t: t, access: &reviewtest.Access{Allow: reviewtest.Everything}}
		b.auth, b.tokens = newTokenAuthenticator(t, authn.Options{})
		b.a = authz.New(authz.Options{AccessReviewer: b.access})
		opts.Authorizer, opts.Authenticator = b.a, b.auth
		b.watches = New(opts)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.watches.Run(ctx)
		}()
		test(b)
		stop()
		<-done
		if n := len(b.watches.mu.grants); n != 0 && b.openWatches() == 0 {
			t.Errorf("%d grants left of no watches", n)
		}
	})
}

func (b *watchBed) openWatches() int {
	b.watches.mu.Lock()
	defer b.watches.mu.Unlock()
	return b.watches.mu.open
}

func (b *watchBed) bytes() int {
	b.watches.mu.Lock()
	defer b.watches.mu.Unlock()
	return b.watches.mu.bytes
}

// openWatch is a registered watch and how it ended.
type openWatch struct {
	registration *Registration
	opened       time.Time

	mu     sync.Mutex
	reason reason.WatchEnd
	after  time.Duration
	ends   int
}

func (o *openWatch) end(reason reason.WatchEnd) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reason, o.after = reason, time.Since(o.opened)
	o.ends++
}

func (o *openWatch) state() (reason.WatchEnd, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reason, o.after
}

func (b *watchBed) subject(u *authn.User) *authn.Subject {
	return &authn.Subject{Identity: &authn.Identity{User: u, Source: authn.FrontProxy}, User: u}
}

func (b *watchBed) open(s *authn.Subject, attributes authz.Attributes) *openWatch {
	b.t.Helper()
	d, err := b.a.Authorize(b.t.Context(), s.User, attributes)
	if err != nil || !d.Allowed {
		b.t.Fatalf("not allowed to begin with: %+v, %v", d, err)
	}
	o := &openWatch{opened: time.Now()}
	o.registration = b.watches.Register(s, attributes, d, o.end)
	return o
}

func (b *watchBed) expect(o *openWatch, reason reason.WatchEnd) {
	b.t.Helper()
	synctest.Wait()
	if got, after := o.state(); got != reason {
		b.t.Errorf("ended by %q after %v, want %q", got, after, reason)
	}
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func named(name string) *authn.User { return authn.NewUser(&user.DefaultInfo{Name: name}) }

func TestRevocationEndsWatches(t *testing.T) {
	inWatchBed(t, Options{}, func(b *watchBed) {
		alice, bob := b.subject(named("alice")), b.subject(named("bob"))
		a1, a2, b1 := b.open(alice, watchPods), b.open(alice, watchPods), b.open(bob, watchPods)
		closed := b.open(alice, watchPods)
		closed.registration.Close()
		closed.registration.Close()
		time.Sleep(10 * time.Second)

		before := b.access.Count()
		b.access.Set(reviewtest.Only("bob"))
		b.a.Invalidate()
		time.Sleep(2 * time.Second)
		b.expect(a1, reason.PermissionRevoked)
		b.expect(a2, reason.PermissionRevoked)
		b.expect(b1, reason.NotEnded)
		b.expect(closed, reason.NotEnded)
		// alice once, bob once and once more when the upstream must have settled.
		if n := b.access.Count() - before; n != 3 {
			b.t.Errorf("%d reviews, want 3", n)
		}
		if n := b.openWatches(); n != 1 {
			b.t.Errorf("%d watches open, want 1", n)
		}
		time.Sleep(time.Hour)
		if a1.ends != 1 {
			b.t.Errorf("ended %d times", a1.ends)
		}
		b1.registration.Close()
	})
}

// TestRevocationSeenLate: the upstream's authorizer learns of the change after
// the gateway.
func TestRevocationSeenLate(t *testing.T) {
	inWatchBed(t, Options{}, func(b *watchBed) {
		o := b.open(b.subject(named("alice")), watchPods)
		time.Sleep(5 * time.Second)
		b.a.Invalidate()
		time.Sleep(900 * time.Millisecond)
		b.access.Set(reviewtest.Nothing)
		time.Sleep(1100 * time.Millisecond)
		b.expect(o, reason.PermissionRevoked)
	})
}

// TestConstantChanges: a revocation among ceaseless changes is still followed in
// time, and the changes do not multiply the reviews.
func TestConstantChanges(t *testing.T) {
	inWatchBed(t, Options{}, func(b *watchBed) {
		alice, bob := b.open(b.subject(named("alice")), watchPods), b.open(b.subject(named("bob")), watchPods)
		churn := func(d time.Duration) {
			for range d / (10 * time.Millisecond) {
				b.a.Invalidate()
				time.Sleep(10 * time.Millisecond)
			}
		}
		before := b.access.Count()
		churn(20 * time.Second)
		if n := b.access.Count() - before; n < 2*19 || n > 2*21 {
			b.t.Errorf("%d reviews of two watches in 20 s", n)
		}
		b.access.Set(reviewtest.Only("bob"))
		churn(2 * time.Second)
		b.expect(alice, reason.PermissionRevoked)
		b.expect(bob, reason.NotEnded)
		bob.registration.Close()
	})
}

// TestRegisteredDuringChange: the change came after the decision and was followed
// before the watch was registered.
func TestRegisteredDuringChange(t *testing.T) {
	inWatchBed(t, Options{}, func(b *watchBed) {
		s := b.subject(named("alice"))
		d, err := b.a.Authorize(b.t.Context(), s.User, watchPods)
		if err != nil {
			b.t.Fatal(err)
		}
		b.access.Set(reviewtest.Nothing)
		b.a.Invalidate()
		time.Sleep(10 * time.Second)
		o := &openWatch{opened: time.Now()}
		o.registration = b.watches.Register(s, watchPods, d, o.end)
		time.Sleep(2 * time.Second)
		b.expect(o, reason.PermissionRevoked)
	})
}

// TestPeriodicRecheck: without any change to be seen (RBAC is not watched, or
// the upstream decides by other rules), a revocation is found in time.
func TestPeriodicRecheck(t *testing.T) {
	inWatchBed(t, Options{RecheckPeriod: 30 * time.Second}, func(b *watchBed) {
		o := b.open(b.subject(named("alice")), watchPods)
		time.Sleep(5 * time.Minute)
		b.expect(o, reason.NotEnded)
		if n := b.access.Count(); n < 8 || n > 12 {
			b.t.Errorf("%d reviews in 5 min", n)
		}
		b.access.Set(reviewtest.Nothing)
		time.Sleep(31 * time.Second)
		b.expect(o, reason.PermissionRevoked)
	})
}

func TestRevokedImpersonation(t *testing.T) {
	inWatchBed(t, Options{}, func(b *watchBed) {
		r := &api.Request{Header: api.Header{{Name: "Impersonate-User", Value: "alice"}, {Name: "Impersonate-Group", Value: "g"}}}
		s, err := b.a.Impersonate(b.t.Context(), &authn.Identity{User: named("proxy"), Source: authn.ClientCertificate}, r)
		if err != nil {
			b.t.Fatal(err)
		}
		o := b.open(s, watchPods)
		other := b.open(b.subject(s.User), watchPods)
		b.access.Set(func(s *authorizationv1.SubjectAccessReviewSpec) bool {
			return s.ResourceAttributes.Resource != "groups"
		})
		b.a.Invalidate()
		time.Sleep(2 * time.Second)
		b.expect(o, reason.PermissionRevoked)
		b.expect(other, reason.NotEnded)
		other.registration.Close()
	})
}

func TestTokenOfAnOpenWatch(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*watchBed)
		ends   reason.WatchEnd
	}{
		{"still valid", func(*watchBed) {}, reason.NotEnded},
		{"revoked", func(b *watchBed) { b.tokens.Drop(janeToken) }, reason.CredentialInvalid},
		{"of another user", func(b *watchBed) { b.tokens.Set(janeToken, authenticationv1.UserInfo{Username: "bob"}) }, reason.CredentialInvalid},
		{"other groups", func(b *watchBed) {
			b.tokens.Set(janeToken, authenticationv1.UserInfo{Username: "jane", Groups: []string{"other"}})
		}, reason.CredentialInvalid},
		{"groups in another order, other extra", func(b *watchBed) {
			b.tokens.Set(janeToken, authenticationv1.UserInfo{Username: "jane", Groups: []string{"devs", "system:authenticated", "devs"},
				Extra: map[string]authenticationv1.ExtraValue{"at": {"now"}}})
		}, reason.NotEnded},
		{"upstream down", func(b *watchBed) { b.tokens.Fail(reviewtest.ErrDown) }, reason.NotEnded},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWatchBed(t, Options{}, func(b *watchBed) {
				id, err := byToken(b.t.Context(), b.auth, janeToken)
				if err != nil {
					b.t.Fatal(err)
				}
				o := b.open(&authn.Subject{Identity: id, User: id.User}, watchPods)
				second := b.open(&authn.Subject{Identity: id, User: id.User}, watchPods)
				test.change(b)
				reviews := b.tokens.Count()
				time.Sleep(62 * time.Second)
				b.expect(o, test.ends)
				b.expect(second, test.ends)
				if n := b.tokens.Count() - reviews; test.name != "upstream down" && n != 1 {
					b.t.Errorf("%d reviews of one token in a period, want 1", n)
				}
				o.registration.Close()
				second.registration.Close()
			})
		})
	}
}

func TestUnconfirmedWatches(t *testing.T) {
	inWatchBed(t, Options{Grace: 5 * time.Minute}, func(b *watchBed) {
		o := b.open(b.subject(named("alice")), watchPods)
		lasting := b.open(b.subject(named("bob")), watchPods)
		b.access.Fail(reviewtest.ErrDown)
		time.Sleep(5 * time.Minute) // one minute till the first failure, four of failures
		b.expect(o, reason.NotEnded)
		b.access.Fail(nil)
		time.Sleep(2 * time.Second)
		b.access.Fail(reviewtest.ErrDown)
		time.Sleep(5 * time.Minute)
		b.expect(o, reason.NotEnded) // the grace began anew
		lasting.registration.Close()
		time.Sleep(2 * time.Minute)
		b.expect(o, reason.Unconfirmed)
		b.expect(lasting, reason.NotEnded)
	})
}

// TestHangingUpstream: reviews that never come back do not stop the following of
// others.
func TestHangingUpstream(t *testing.T) {
	inWatchBed(t, Options{Parallelism: 2, Grace: time.Minute}, func(b *watchBed) {
		var watches []*openWatch
		for i := range 50 {
			watches = append(watches, b.open(b.subject(named(fmt.Sprint("user", i))), watchPods))
		}
		b.access.Slow(time.Hour)
		time.Sleep(3 * time.Minute)
		for _, o := range watches {
			b.expect(o, reason.Unconfirmed)
		}
	})
}

// TestWatchesOfTheGateway are not followed: they depend on no review.
func TestWatchesOfTheGateway(t *testing.T) {
	inWatchBed(t, Options{}, func(b *watchBed) {
		id, err := b.auth.Authenticate(b.t.Context(), &api.Request{Listener: api.ListenerSidecar, RemoteAddr: "@"})
		if err != nil {
			b.t.Fatal(err)
		}
		o := b.open(&authn.Subject{Identity: id, User: id.User}, watchPods)
		b.access.Set(reviewtest.Nothing)
		b.a.Invalidate()
		time.Sleep(time.Hour)
		b.expect(o, reason.NotEnded)
		o.registration.Close()
		if n := b.access.Count(); n != 0 {
			b.t.Errorf("%d reviews", n)
		}
	})
}

// TestManyWatches: 1,000 watches with 200 rights, revoked for half of the users,
// each review taking 5 ms.
func TestManyWatches(t *testing.T) {
	inWatchBed(t, Options{}, func(b *watchBed) {
		var gone, stay []*openWatch
		for i := range 1000 {
			name := fmt.Sprint("stay", i%100)
			if i%2 == 0 {
				name = fmt.Sprint("gone", i%100)
			}
			o := b.open(b.subject(named(name)), watchPods)
			if i%2 == 0 {
				gone = append(gone, o)
			} else {
				stay = append(stay, o)
			}
		}
		b.access.Slow(5 * time.Millisecond)
		b.access.Set(func(s *authorizationv1.SubjectAccessReviewSpec) bool { return s.User[:4] == "stay" })
		before := b.access.Count()
		b.a.Invalidate()
		time.Sleep(2 * time.Second)
		for _, o := range gone {
			b.expect(o, reason.PermissionRevoked)
		}
		for _, o := range stay {
			b.expect(o, reason.NotEnded)
			o.registration.Close()
		}
		if n := b.access.Count() - before; n != 100+50 {
			b.t.Errorf("%d reviews, want 150", n)
		}
	})
}

func TestConcurrentRegistrations(t *testing.T) {
	inWatchBed(t, Options{}, func(b *watchBed) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for range 200 {
					o := b.open(b.subject(named(fmt.Sprint("u", i%3))), watchPods)
					b.a.Invalidate()
					o.registration.Close()
				}
			})
		}
		wg.Wait()
		if n := b.openWatches(); n != 0 {
			b.t.Errorf("%d watches left", n)
		}
	})
}

// TestManyGrantsOfOneUser: one user's thousands of large reviews delay neither the
// revocation of another's watch nor, for long, that of its own.
func TestManyGrantsOfOneUser(t *testing.T) {
	inWatchBed(t, Options{}, func(b *watchBed) {
		var watches []*openWatch
		for i := range 500 {
			a := watchPods
			a.LabelSelector = fmt.Sprintf("app in (%s%d)", strings.Repeat("x", 3000), i)
			watches = append(watches, b.open(b.subject(named("hog")), a))
		}
		bob := b.open(b.subject(named("bob")), watchPods)
		watches = append(watches, bob)
		if n := b.bytes(); n < 500*3000 || n > 500*3200 {
			b.t.Errorf("%d bytes are counted", n)
		}
		b.access.Slow(600 * time.Millisecond)
		time.Sleep(55 * time.Second) // the periodic reviews, 19 s of them, have begun
		for range 20 {
			time.Sleep(time.Second)
			b.expect(bob, reason.NotEnded)
		}
		b.access.Set(reviewtest.Only("hog"))
		revoked := time.Now()
		b.a.Invalidate()
		time.Sleep(time.Second)
		b.expect(bob, reason.PermissionRevoked)
		if _, after := bob.state(); after > revoked.Sub(bob.opened)+time.Second {
			b.t.Errorf("revoked after %v", after)
		}
		for _, o := range watches {
			o.registration.Close()
		}
		if n := b.bytes(); n != 0 {
			b.t.Errorf("%d bytes are left", n)
		}
	})
}

// granted are the namespaces of each user.
type granted struct{ of map[string][]string }

func (g *granted) Namespaces(u user.Info, _ *authz.Attributes, _ bool) (names []string, everywhere bool) {
	return slices.Clone(g.of[u.GetName()]), false
}

func (g *granted) Allow(user.Info, *authz.Attributes) bool { return false }

// TestLateWatchOfNamespaces: a watch that begins with a set of before a change ends in time, although the sweep is over and
// what others have gained is being reviewed.
func TestLateWatchOfNamespaces(t *testing.T) {
	inWatchBed(t, Options{}, func(b *watchBed) {
		var now atomic.Pointer[granted]
		now.Store(&granted{map[string][]string{"alice": {"a", "b"}, "bob": {"a"}}})
		v := visible.New(visible.Options{Authorizer: b.a, Grants: func() visible.Grants { return now.Load() }})
		sets := make(map[string]*visible.Set)
		for name := range now.Load().of {
			set, _, err := v.Of(b.t.Context(), named(name), watchPods)
			if err != nil || !set.Hold() {
				b.t.Fatal(err)
			}
			sets[name] = set
		}
		open := func(name string) *openWatch {
			o := &openWatch{opened: time.Now()}
			o.registration = b.watches.RegisterVisible(b.subject(named(name)), sets[name], o.end)
			return o
		}
		bob := open("bob")
		time.Sleep(2 * time.Second)
		b.access.Slow(100 * time.Millisecond)
		more := []string{"a"}
		for i := range 2000 {
			more = append(more, fmt.Sprintf("n%d", i))
		}
		now.Store(&granted{map[string][]string{"alice": {"a"}, "bob": more}})
		b.a.Invalidate()
		time.Sleep(2500 * time.Millisecond) // bob's reviews have begun
		alice := open("alice")
		time.Sleep(time.Second)
		b.expect(alice, reason.NamespacesChanged)
		b.expect(bob, reason.NotEnded)
		time.Sleep(20 * time.Second)
		b.expect(bob, reason.NamespacesChanged)
	})
}

// TestWatchesAfterTheOutage: watches that went on by what the upstream said last are asked
// about as soon as it answers.
func TestWatchesAfterTheOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var reachable atomic.Bool
		reachable.Store(true)
		access := &reviewtest.Access{Allow: reviewtest.Everything}
		auth, reviewer := newTokenAuthenticator(t, authn.Options{Settings: review.Settings{OfflineTTL: time.Hour, Reachable: reachable.Load}})
		a := authz.New(authz.Options{AccessReviewer: access, Settings: review.Settings{OfflineTTL: time.Hour, Reachable: reachable.Load}})
		b := &watchBed{t: t, access: access, tokens: reviewer, a: a, auth: auth,
			watches: New(Options{Authorizer: a, Authenticator: auth})}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.watches.Run(ctx) })
		defer running.Wait()
		defer stop()

		id, err := byToken(t.Context(), auth, janeToken)
		if err != nil {
			t.Fatal(err)
		}
		s := &authn.Subject{Identity: id, User: id.User}
		joe := b.subject(named("joe"))
		before, ofJoe := b.open(s, watchPods), b.open(joe, watchPods)
		reachable.Store(false)
		reviewer.Fail(reviewtest.ErrDown)
		access.Fail(reviewtest.ErrDown)
		time.Sleep(90 * time.Second)
		during := b.open(joe, watchPods)
		time.Sleep(200 * time.Millisecond)
		for _, o := range []*openWatch{before, ofJoe, during} {
			b.expect(o, reason.NotEnded)
		}
		reviewer.Drop(janeToken)
		access.Set(reviewtest.Only("jane"))
		reviewer.Fail(nil)
		access.Fail(nil)
		reachable.Store(true)
		time.Sleep(2 * time.Second)
		b.expect(before, reason.CredentialInvalid)
		b.expect(ofJoe, reason.PermissionRevoked)
		b.expect(during, reason.PermissionRevoked)
	})
}
