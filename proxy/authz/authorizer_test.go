package authz

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/reviewtest"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/review"
)

var (
	jane     = authn.NewUser(&user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{"devs", "system:authenticated"}, Extra: map[string][]string{"scopes": {"a"}}})
	listPods = Attributes{ResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "pods", Namespace: "default"}
)

// client-go's typed client is a reviewer.
var _ AccessReviewer = authorizationv1client.SubjectAccessReviewInterface(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func named(name string) *authn.User { return authn.NewUser(&user.DefaultInfo{Name: name}) }

// infoOf copies what u tells of itself.
func infoOf(u user.Info) user.DefaultInfo {
	return user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
}

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
		access := &reviewtest.Access{Allow: reviewtest.Everything}
		a := New(Options{AccessReviewer: access})
		info := api.ParseRequestInfo(test.method, test.path, test.query)
		if d, err := a.Authorize(t.Context(), jane, AttributesOf(&info)); err != nil || !d.Allowed || d.Reason != "RBAC: allowed" {
			t.Errorf("%s: %+v, %v", test.path, d, err)
		}
		test.want.User, test.want.UID, test.want.Groups = "jane", "7", []string{"devs", "system:authenticated"}
		test.want.Extra = map[string]authorizationv1.ExtraValue{"scopes": {"a"}}
		got := access.Specs()[0]
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
		if err.Error() != test.want || err.ErrStatus.Code != 403 || authn.StatusError(err) != err {
			t.Errorf("got %v\nwant %v", err, test.want)
		}
	}
}

func TestDecisionsAreCached(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &reviewtest.Access{Allow: func(s *authorizationv1.SubjectAccessReviewSpec) bool { return s.ResourceAttributes.Verb == "list" }}
		reg := prometheus.NewRegistry()
		a := New(Options{AccessReviewer: access, Settings: review.Settings{Registerer: reg}})
		deletePods := listPods
		deletePods.Verb = "delete"
		bob := authn.NewUser(&user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{"devs", "system:authenticated"}})
		expect := func(u user.Info, attributes Attributes, allowed bool, reviews int) {
			t.Helper()
			d, err := a.Authorize(t.Context(), u, attributes)
			if err != nil || d.Allowed != allowed {
				t.Errorf("%+v, %v; want allowed = %v", d, err, allowed)
			}
			if n := access.Count(); n != reviews {
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
# HELP kubeweir_authorization_cache_entries Cached authorization decisions.
# TYPE kubeweir_authorization_cache_entries gauge
kubeweir_authorization_cache_entries 6
# HELP kubeweir_authorization_reviews_total Authorization decisions by result (allowed, denied, error) and by where they come from: upstream, cache, or offline (its last decision or the RBAC objects in the cache, because the upstream is unavailable).
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

func TestFailClosed(t *testing.T) {
	for _, test := range []struct {
		name    string
		err     error
		offline time.Duration
		code    int32 // 0: allowed
	}{
		{"down", reviewtest.ErrDown, 0, 503},
		{"forbidden to ask", apierrors.NewForbidden(schema.GroupResource{Resource: "subjectaccessreviews"}, "", errors.New("no")), time.Hour, 503},
		{"down, offline time", reviewtest.ErrDown, time.Hour, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				access := &reviewtest.Access{Allow: reviewtest.Everything}
				a := New(Options{AccessReviewer: access, Settings: review.Settings{OfflineTTL: test.offline}})
				if _, err := a.Authorize(t.Context(), jane, listPods); err != nil {
					t.Fatal(err)
				}
				time.Sleep(11 * time.Second)
				access.Fail(test.err)
				d, err := a.Authorize(t.Context(), jane, listPods)
				if test.code == 0 {
					if err != nil || !d.Allowed {
						t.Errorf("known permission: %+v, %v", d, err)
					}
				} else if d.Allowed || err == nil || authn.StatusError(err).ErrStatus.Code != test.code {
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

// TestUpstreamHangs: with an offline time, nobody waits for an upstream that is known not to
// answer, and before that is known each permission waits a little, once in a while.
func TestUpstreamHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &reviewtest.Access{Allow: reviewtest.Everything}
		var silent atomic.Bool
		reachable := func() bool { return !silent.Load() }
		a := New(Options{AccessReviewer: access, Settings: review.Settings{OfflineTTL: time.Hour, Reachable: reachable}})
		users := make([]*authn.User, 50)
		for i := range users {
			users[i] = named(fmt.Sprint("user", i))
			if _, err := a.Authorize(t.Context(), users[i], listPods); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(11 * time.Second)
		access.Slow(time.Hour)
		slow := 0
		for round := range 6 { // once a second, all of them
			silent.Store(round > 0)
			for _, u := range users {
				start := time.Now()
				if d, err := a.Authorize(t.Context(), u, listPods); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
				if waited := time.Since(start); waited > review.StaleWait {
					t.Fatalf("waited %v", waited)
				} else if waited > 0 {
					slow++
				}
			}
			time.Sleep(time.Second)
		}
		if slow != len(users) {
			t.Errorf("%d requests waited, want the first one of each user", slow)
		}
		access.Slow(0)
		access.Set(reviewtest.Nothing)
		silent.Store(false)
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
	a := New(Options{AccessReviewer: both})
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
		access := &reviewtest.Access{Allow: reviewtest.Everything}
		a := New(Options{AccessReviewer: access})
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
		access.Set(reviewtest.Nothing)
		if !allowed() {
			t.Fatal("not remembered")
		}
		a.Invalidate()
		if allowed() {
			t.Error("allowed after the change")
		}

		// The upstream that told of the change may still decide by the old state.
		access.Set(reviewtest.Everything)
		a.Invalidate()
		if !allowed() {
			t.Fatal("not allowed by the old state")
		}
		access.Set(reviewtest.Nothing)
		time.Sleep(Settle)
		if allowed() {
			t.Error("a decision made before the upstream settled was remembered")
		}
	})
}

// TestReviewUnderWayDuringChange: its answer goes to those who asked before the
// change only, and is not remembered.
func TestReviewUnderWayDuringChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &reviewtest.Access{Allow: reviewtest.Everything, Latency: time.Second}
		a := New(Options{AccessReviewer: access})
		var wg sync.WaitGroup
		request := func(want bool) {
			wg.Go(func() {
				if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || d.Allowed != want {
					t.Errorf("%+v, %v; want allowed = %v", d, err, want)
				}
			})
		}
		request(true)
		synctest.Wait()
		access.Set(reviewtest.Nothing)
		a.Invalidate()
		for range 10 {
			request(false)
		}
		wg.Wait()
		request(false)
		wg.Wait()
	})
}

func TestSimultaneousReviewsAreShared(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &reviewtest.Access{Allow: reviewtest.Everything, Latency: time.Second}
		a := New(Options{AccessReviewer: access})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			})
		}
		wg.Wait()
		if n := access.Count(); n != 1 {
			t.Errorf("%d reviews, want 1", n)
		}
	})
}

func TestReviewIsRetriedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &reviewtest.Access{Allow: reviewtest.Everything, Err: reviewtest.ErrDown}
		access.Begun = func() {
			if access.Count() == 1 {
				access.Fail(nil)
			}
		}
		a := New(Options{AccessReviewer: access})
		if d, err := a.Authorize(t.Context(), jane, listPods); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

func TestReviewTimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &reviewtest.Access{Allow: reviewtest.Everything, Latency: time.Hour}
		a := New(Options{AccessReviewer: access, Settings: review.Settings{ReviewTimeout: time.Second}})
		start := time.Now()
		d, err := a.Authorize(t.Context(), jane, listPods)
		if d.Allowed || !errors.Is(err, review.ErrUnavailable) || time.Since(start) > 3*time.Second {
			t.Errorf("%+v, %v after %v", d, err, time.Since(start))
		}
	})
}

func TestGatewayNeedsNoReview(t *testing.T) {
	auth, err := authn.New(authn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	access := &reviewtest.Access{}
	a := New(Options{AccessReviewer: access})
	id, err := auth.Authenticate(t.Context(), &api.Request{Listener: api.ListenerSidecar, RemoteAddr: "@"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.Impersonate(t.Context(), id, &api.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if d, err := a.Authorize(t.Context(), s.User, listPods); err != nil || !d.Allowed || access.Count() != 0 {
		t.Errorf("%+v, %v, %d reviews", d, err, access.Count())
	}
	// The mark is not the name: nobody else gets it.
	other := &user.DefaultInfo{Name: s.User.GetName(), Groups: s.User.GetGroups()}
	if d, err := a.Authorize(t.Context(), other, listPods); err != nil || d.Allowed {
		t.Errorf("another of the same name: %+v, %v", d, err)
	}
}

func TestHitAllocatesNothing(t *testing.T) {
	a := New(Options{AccessReviewer: &reviewtest.Access{Allow: reviewtest.Everything}, AllowedTTL: time.Hour})
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
	a := New(Options{AccessReviewer: &reviewtest.Access{Allow: reviewtest.Everything}, AllowedTTL: time.Hour})
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

// TestReviewsOfOneUserDelayNobodyElse: a user who asks for many objects by name has
// as many permissions reviewed.
func TestReviewsOfOneUserDelayNobodyElse(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &reviewtest.Access{Allow: reviewtest.Everything, Latency: time.Second}
		a := New(Options{AccessReviewer: access})
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
					codes <- authn.StatusError(err).ErrStatus.Code
				}
			})
		}
		synctest.Wait()
		if n := access.Count(); n != review.UserReviews {
			t.Errorf("%d reviews at a time, want %d", n, review.UserReviews)
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
	})
}

// TestReviewsEndInTime: neither the second try nor a review that is under way
// already adds to what a request waits.
func TestReviewsEndInTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		access := &reviewtest.Access{Latency: time.Hour}
		a := New(Options{AccessReviewer: access})
		var requests sync.WaitGroup
		for i := range 3 {
			requests.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				began := time.Now()
				if _, err := a.Authorize(t.Context(), jane, listPods); !errors.Is(err, review.ErrUnavailable) {
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

// TestReviewsDoNotRevealTheGateway: what the upstream says of the gateway's own
// requests is not for clients.
func TestReviewsDoNotRevealTheGateway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rejection := func(resource string) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New(`User "the-gateway" cannot create`))
		}
		for _, test := range []struct {
			err  error
			code int32
		}{
			{rejection("tokenreviews"), 503},
			{apierrors.NewUnauthorized("the-gateway"), 503},
			{apierrors.NewServiceUnavailable("the-gateway"), 503},
			{apierrors.NewInternalError(errors.New("the-gateway")), 503},
			{apierrors.NewBadRequest("the-gateway"), 500},
			{apierrors.NewGenericServerResponse(404, "create", schema.GroupResource{}, "", "the-gateway", 0, true), 500},
			{errors.New("dial tcp the-gateway: connection refused"), 503},
		} {
			a, reviewer := newTokenAuthenticator(t, authn.Options{Settings: review.Settings{ReviewTimeout: time.Second}})
			reviewer.Fail(test.err)
			_, err := byToken(t.Context(), a, janeToken)
			access := &reviewtest.Access{Allow: reviewtest.Everything, Err: test.err}
			_, err2 := New(Options{AccessReviewer: access}).Authorize(t.Context(), jane, listPods)
			for _, err := range []error{err, err2} {
				status := authn.StatusError(err).ErrStatus
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

// TestRecordHasSelectors checks that an authorizer sees the selectors of a request, as that of nodes needs
// them, or that they cannot be parsed.
func TestRecordHasSelectors(t *testing.T) {
	a := Attributes{ResourceRequest: true, Verb: "list", Resource: "pods", FieldSelector: "spec.nodeName=one", LabelSelector: "app in (web)"}
	record := a.Record(&user.DefaultInfo{Name: "jane"})
	byField, err := record.GetFieldSelector()
	if err != nil || len(byField) != 1 || byField[0].Field != "spec.nodeName" || byField[0].Value != "one" {
		t.Errorf("%v, %v", byField, err)
	}
	byLabel, err := record.GetLabelSelector()
	if err != nil || len(byLabel) != 1 || byLabel[0].Key() != "app" {
		t.Errorf("%v, %v", byLabel, err)
	}
	a.FieldSelector, a.LabelSelector = "spec.nodeName", "app in"
	record = a.Record(&user.DefaultInfo{Name: "jane"})
	if _, err := record.GetFieldSelector(); err == nil {
		t.Error("an invalid field selector")
	}
	if _, err := record.GetLabelSelector(); err == nil {
		t.Error("an invalid label selector")
	}
}
