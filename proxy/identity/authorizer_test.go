package identity

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

var (
	jane     = NewUser(&user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{"devs", "system:authenticated"}, Extra: map[string][]string{"scopes": {"a"}}})
	listPods = Attributes{ResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "pods", Namespace: "default"}
)

func TestReview(t *testing.T) {
	tests := []struct {
		method, path, query string
		want                authorizationv1.SubjectAccessReviewSpec
	}{
		{"GET", "/api/v1/namespaces/default/pods/x/log", "", authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "get", Version: "v1", Resource: "pods", Subresource: "log", Name: "x"}}},
		{"GET", "/apis/apps/v1/deployments", "watch=1&fieldSelector=metadata.name%3Dx%2Cmetadata.namespace!%3Dy&labelSelector=a%3Db%2Cc+notin+(d)%2C!e%2Cf%2Cg%3E5",
			authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "watch", Group: "apps", Version: "v1", Resource: "deployments", Name: "x",
				FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
					{Key: "metadata.name", Operator: "In", Values: []string{"x"}}, {Key: "metadata.namespace", Operator: "NotIn", Values: []string{"y"}}}},
				LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
					{Key: "a", Operator: "In", Values: []string{"b"}}, {Key: "c", Operator: "NotIn", Values: []string{"d"}},
					{Key: "e", Operator: "DoesNotExist", Values: []string{}}, {Key: "f", Operator: "Exists", Values: []string{}}}},
			}}},
		{"GET", "/api/v1/pods", "labelSelector=((", authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: "pods"}}},
		{"GET", "/version", "x=y", authorizationv1.SubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/version", Verb: "get"}}},
	}
	for _, test := range tests {
		access := &fakeAccess{allow: everything}
		a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access})
		info := api.ParseRequestInfo(test.method, test.path, test.query)
		if d, err := a.Authorize(t.Context(), jane, AttributesOf(&info)); err != nil || !d.Allowed || d.Reason != "RBAC: allowed" {
			t.Errorf("%s: %+v, %v", test.path, d, err)
		}
		test.want.User, test.want.UID, test.want.Groups = "jane", "7", []string{"devs", "system:authenticated"}
		test.want.Extra = map[string]authorizationv1.ExtraValue{"scopes": {"a"}}
		got := access.specs()[0]
		if r := got.ResourceAttributes; r != nil && r.LabelSelector != nil { // nil or empty is the same
			for i := range r.LabelSelector.Requirements {
				if r.LabelSelector.Requirements[i].Values == nil {
					r.LabelSelector.Requirements[i].Values = []string{}
				}
			}
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", test.path, got.ResourceAttributes, test.want.ResourceAttributes)
		}
	}
}

// TestForbidden: the texts are those of a kube-apiserver v1.36.3.
func TestForbidden(t *testing.T) {
	for _, test := range []struct {
		a      Attributes
		reason string
		want   string
	}{
		{Attributes{ResourceRequest: true, Verb: "get", Resource: "pods", Subresource: "log", Namespace: "default", Name: "x"}, "",
			`pods "x" is forbidden: User "u" cannot get resource "pods/log" in API group "" in the namespace "default"`},
		{Attributes{ResourceRequest: true, Verb: "list", Resource: "deployments", APIGroup: "apps"}, `RBAC: role "<x>" not found`,
			`deployments.apps is forbidden: User "u" cannot list resource "deployments" in API group "apps" at the cluster scope: RBAC: role "<x>" not found`},
		{Attributes{Verb: "get", Path: "/a&b"}, "", `forbidden: User "u" cannot get path "/a&amp;b"`},
	} {
		err := Forbidden(&user.DefaultInfo{Name: "u"}, test.a, test.reason)
		if err.Error() != test.want || err.ErrStatus.Code != 403 || StatusError(err) != err {
			t.Errorf("got %v\nwant %v", err, test.want)
		}
	}
}

func TestDecisionsAreCached(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &fakeAccess{allow: func(s *authorizationv1.SubjectAccessReviewSpec) bool { return s.ResourceAttributes.Verb == "list" }}
		reg := prometheus.NewRegistry()
		a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access, Registerer: reg})
		deletePods := listPods
		deletePods.Verb = "delete"
		bob := NewUser(&user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{"devs", "system:authenticated"}})
		expect := func(u user.Info, attributes Attributes, allowed bool, reviews int) {
			t.Helper()
			d, err := a.Authorize(t.Context(), u, attributes)
			if err != nil || d.Allowed != allowed {
				t.Errorf("%+v, %v; want allowed = %v", d, err, allowed)
			}
			if n := access.count(); n != reviews {
				t.Errorf("%d reviews so far, want %d", n, reviews)
			}
		}
		expect(jane, listPods, true, 1)
		expect(jane, listPods, true, 1)
		expect(&user.DefaultInfo{Name: "jane", UID: "7", Groups: jane.GetGroups(), Extra: jane.GetExtra()}, listPods, true, 1)
		expect(jane, deletePods, false, 2)
		expect(jane, deletePods, false, 2)
		expect(bob, listPods, true, 3) // without the scope
		time.Sleep(5 * time.Second)
		expect(jane, deletePods, false, 3+1)
		expect(jane, listPods, true, 4)
		time.Sleep(5 * time.Second)
		expect(jane, listPods, true, 5)

		huge := listPods
		huge.LabelSelector = "a=" + strings.Repeat("b", maxKeyBytes)
		expect(jane, huge, true, 6)
		expect(jane, huge, true, 6)
		larger := huge
		larger.LabelSelector += "b"
		expect(jane, larger, true, 7)
		expect(bob, huge, true, 8)

		if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP kubeweir_authorization_cache_entries Decisions that are remembered.
# TYPE kubeweir_authorization_cache_entries gauge
kubeweir_authorization_cache_entries 6
# HELP kubeweir_authorization_reviews_total Permissions decided, by result (allowed, denied, error) and by where the answer came from: the upstream, the cache, or, because the upstream could not be asked, its last word or the RBAC objects in the cache (offline).
# TYPE kubeweir_authorization_reviews_total counter
kubeweir_authorization_reviews_total{from="cache",result="allowed"} 4
kubeweir_authorization_reviews_total{from="cache",result="denied"} 1
kubeweir_authorization_reviews_total{from="offline",result="allowed"} 0
kubeweir_authorization_reviews_total{from="offline",result="denied"} 0
kubeweir_authorization_reviews_total{from="upstream",result="allowed"} 6
kubeweir_authorization_reviews_total{from="upstream",result="denied"} 2
kubeweir_authorization_reviews_total{from="upstream",result="error"} 0
`), "kubeweir_authorization_cache_entries", "kubeweir_authorization_reviews_total"); err != nil {
			t.Error(err)
		}
	})
}

// TestUsersDoNotCollide: no way to write one user's fields yields another's key.
func TestUsersDoNotCollide(t *testing.T) {
	seen := make(map[digest]user.DefaultInfo)
	for _, u := range []user.DefaultInfo{
		{Name: "a"}, {UID: "a"}, {Groups: []string{"a"}}, {Groups: []string{"a", ""}}, {Groups: []string{"", "a"}}, {},
		{Name: "a", UID: "b"}, {Name: "ab"}, {Name: "b", UID: "a"}, {Groups: []string{"ab"}}, {Groups: []string{"a", "b"}},
		{Extra: map[string][]string{"a": {"b"}}}, {Extra: map[string][]string{"a": {"b", ""}}}, {Extra: map[string][]string{"a": nil, "b": nil}},
		{Extra: map[string][]string{"a": nil}}, {Groups: []string{"a"}, Extra: map[string][]string{"b": nil}},
	} {
		d := NewUser(&u).digest
		if other, ok := seen[d]; ok {
			t.Errorf("%+v and %+v have one digest", u, other)
		}
		seen[d] = u
	}
}

func TestFailClosed(t *testing.T) {
	for _, test := range []struct {
		name    string
		err     error
		offline time.Duration
		code    int32 // 0: allowed
	}{
		{"down", errDown, 0, 503},
		{"forbidden to ask", apierrors.NewForbidden(schema.GroupResource{Resource: "subjectaccessreviews"}, "", errors.New("no")), time.Hour, 503},
		{"down, offline time", errDown, time.Hour, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				access := &fakeAccess{allow: everything}
				a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access, OfflineTTL: test.offline})
				if _, err := a.Authorize(t.Context(), jane, listPods); err != nil {
					t.Fatal(err)
				}
				time.Sleep(11 * time.Second)
				access.fail(test.err)
				d, err := a.Authorize(t.Context(), jane, listPods)
				if test.code == 0 {
					if err != nil || !d.Allowed {
						t.Errorf("known permission: %+v, %v", d, err)
					}
				} else if d.Allowed || err == nil || StatusError(err).ErrStatus.Code != test.code {
					t.Errorf("%+v, %v; want code %d", d, err, test.code)
				}
				getPods := listPods
				getPods.Verb = "get"
				if d, err := a.Authorize(t.Context(), jane, getPods); err == nil || d.Allowed {
					t.Errorf("unknown permission: %+v, %v", d, err)
				}
				a.Invalidate()
				if d, err := a.Authorize(t.Context(), jane, listPods); err == nil || d.Allowed {
					t.Errorf("after a change: %+v, %v", d, err)
				}
			})
		})
	}
}

// TestUpstreamHangs: with an offline time, one request in a while waits a little
// for an upstream that does not answer, and nobody else does.
func TestUpstreamHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &fakeAccess{allow: everything}
		a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access, OfflineTTL: time.Hour})
		users := make([]*User, 50)
		for i := range users {
			users[i] = named(fmt.Sprint("user", i))
			if _, err := a.Authorize(t.Context(), users[i], listPods); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(11 * time.Second)
		access.mu.Lock()
		access.latency = time.Hour
		access.mu.Unlock()
		slow := 0
		for range 6 { // once a second, all of them
			for _, u := range users {
				start := time.Now()
				if d, err := a.Authorize(t.Context(), u, listPods); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
				if waited := time.Since(start); waited > staleWait {
					t.Fatalf("waited %v", waited)
				} else if waited > 0 {
					slow++
				}
			}
			time.Sleep(time.Second)
		}
		if slow == 0 || slow > 2 {
			t.Errorf("%d requests waited, want 1 or 2", slow)
		}
		access.mu.Lock()
		access.latency = 0
		access.mu.Unlock()
		access.set(nothing)
		time.Sleep(outagePause)
		for _, u := range users {
			if d, err := a.Authorize(t.Context(), u, listPods); err != nil || d.Allowed {
				t.Errorf("upstream back: %+v, %v", d, err)
			}
		}
	})
}

func TestDeniedWins(t *testing.T) {
	both := reviewerFunc(func(r *authorizationv1.SubjectAccessReview) {
		r.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}
	})
	a := NewAuthorizer(AuthorizerOptions{AccessReviewer: both})
	if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}

type reviewerFunc func(*authorizationv1.SubjectAccessReview)

func (f reviewerFunc) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	f(r)
	return r, nil
}

func TestInvalidate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &fakeAccess{allow: everything}
		a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access})
		allowed := func() bool {
			d, err := a.Authorize(t.Context(), jane, listPods)
			if err != nil {
				t.Fatal(err)
			}
			return d.Allowed
		}
		if !allowed() {
			t.Fatal("not allowed at first")
		}
		access.set(nothing)
		if !allowed() {
			t.Fatal("not remembered")
		}
		a.Invalidate()
		if allowed() {
			t.Error("allowed after the change")
		}

		// The upstream that told of the change may still decide by the old state.
		access.set(everything)
		a.Invalidate()
		if !allowed() {
			t.Fatal("not allowed by the old state")
		}
		access.set(nothing)
		time.Sleep(settle)
		if allowed() {
			t.Error("a decision made before the upstream settled was remembered")
		}
	})
}

// TestReviewUnderWayDuringChange: its answer goes to those who asked before the
// change only, and is not remembered.
func TestReviewUnderWayDuringChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &fakeAccess{allow: everything, latency: time.Second}
		a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access})
		var wg sync.WaitGroup
		ask := func(want bool) {
			wg.Go(func() {
				if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || d.Allowed != want {
					t.Errorf("%+v, %v; want allowed = %v", d, err, want)
				}
			})
		}
		ask(true)
		synctest.Wait()
		access.set(nothing)
		a.Invalidate()
		for range 10 {
			ask(false)
		}
		wg.Wait()
		ask(false)
		wg.Wait()
	})
}

func TestSimultaneousReviewsAreShared(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &fakeAccess{allow: everything, latency: time.Second}
		a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			})
		}
		wg.Wait()
		if n := access.count(); n != 1 {
			t.Errorf("%d reviews, want 1", n)
		}
	})
}

func TestReviewIsRetriedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &fakeAccess{allow: everything, err: errDown}
		access.begun = func() {
			if access.count() == 1 {
				access.fail(nil)
			}
		}
		a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access})
		if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

func TestReviewTimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &fakeAccess{allow: everything, latency: time.Hour}
		a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access, ReviewTimeout: time.Second})
		start := time.Now()
		d, err := a.Authorize(t.Context(), jane, listPods)
		if d.Allowed || !errors.Is(err, ErrUnavailable) || time.Since(start) > 3*time.Second {
			t.Errorf("%+v, %v after %v", d, err, time.Since(start))
		}
	})
}

func TestGatewayNeedsNoReview(t *testing.T) {
	auth, err := NewAuthenticator(AuthenticatorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	access := &fakeAccess{}
	a := NewAuthorizer(AuthorizerOptions{AccessReviewer: access})
	id, err := auth.Authenticate(t.Context(), &api.Request{Listener: api.ListenerSidecar, RemoteAddr: "@"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.Impersonate(t.Context(), id, &api.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if d, err := a.Authorize(t.Context(), s.User, listPods); err != nil || !d.Allowed || access.count() != 0 {
		t.Errorf("%+v, %v, %d reviews", d, err, access.count())
	}
	// The mark is not the name: nobody else gets it.
	other := &user.DefaultInfo{Name: s.User.GetName(), Groups: s.User.GetGroups()}
	if d, err := a.Authorize(t.Context(), other, listPods); err != nil || d.Allowed {
		t.Errorf("another of the same name: %+v, %v", d, err)
	}
}

func TestHitAllocatesNothing(t *testing.T) {
	a := NewAuthorizer(AuthorizerOptions{AccessReviewer: &fakeAccess{allow: everything}, AllowedTTL: time.Hour})
	info := api.ParseRequestInfo("GET", "/api/v1/namespaces/default/pods/x", "")
	attributes := AttributesOf(&info)
	if n := testing.AllocsPerRun(100, func() {
		if d, err := a.Authorize(t.Context(), jane, attributes); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkAuthorizeHit(b *testing.B) {
	a := NewAuthorizer(AuthorizerOptions{AccessReviewer: &fakeAccess{allow: everything}, AllowedTTL: time.Hour})
	info := api.ParseRequestInfo("GET", "/api/v1/namespaces/default/pods/some-deployment-5d4f8c7b9-abcde", "")
	attributes := AttributesOf(&info)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if d, err := a.Authorize(ctx, jane, attributes); err != nil || !d.Allowed {
			b.Fatal(d, err)
		}
	}
}
