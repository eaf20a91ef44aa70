package fairness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a Controller with the given objects.
func start(t testing.TB, seats int, objects ...runtime.Object) (*Controller, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	c := New(Options{
		Informers: factory, Client: client.FlowcontrolV1(), Seats: seats, WaitLimit: time.Minute,
		LongRunning: func(_ *http.Request, info *apirequest.RequestInfo) bool { return info.Verb == "watch" },
	})
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		factory.Shutdown()
		c.Wait()
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	c.Start(ctx)
	if err := c.WaitConfigured(ctx); err != nil {
		t.Fatal(err)
	}
	return c, client
}

func level(name string, shares int32, response flowcontrolv1.LimitResponse) *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("level-" + name)},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: ptr.To(shares), LendablePercent: ptr.To[int32](0), BorrowingLimitPercent: ptr.To[int32](0), LimitResponse: response,
		}},
	}
}

var reject = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}

func flowSchemaOf(name, level string, precedence int32, rules ...flowcontrolv1.PolicyRulesWithSubjects) *flowcontrolv1.FlowSchema {
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("schema-" + name)},
		Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence: precedence, PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level}, Rules: rules,
		},
	}
}

// classified is how the library classifies a request.
func (c *Controller) classified(u user.Info, r *api.RequestInfo) (schema, level string) {
	c.Interface.Handle(context.Background(), flowcontrol.RequestDigest{User: u, RequestInfo: &apirequest.RequestInfo{
		IsResourceRequest: r.IsResourceRequest, Path: r.Path, Verb: r.Verb, APIGroup: r.APIGroup,
		Namespace: r.Namespace, Resource: r.Resource, Subresource: r.Subresource,
	}}, func(fs *flowcontrolv1.FlowSchema, pl *flowcontrolv1.PriorityLevelConfiguration, _ string) {
		schema, level = string(fs.UID), string(pl.UID)
	}, func() flowcontrolrequest.WorkEstimate {
		return flowcontrolrequest.WorkEstimate{InitialSeats: 1}
	}, func(bool) {}, func() {})
	return schema, level
}

// random makes configurations and requests of few words, so that many match.
type random struct{ *rand.Rand }

func (r random) of(words ...string) string { return words[r.IntN(len(words))] }

func (r random) some(words ...string) (some []string) {
	for range 1 + r.IntN(2) {
		some = append(some, r.of(words...))
	}
	return some
}

func (r random) subject() flowcontrolv1.Subject {
	switch r.IntN(3) {
	case 0:
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: r.of("*", "jane", "system:serviceaccount:a:b", "")}}
	case 1:
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: r.of("*", "devs", "system:masters")}}
	}
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: r.of("a", "ab", ""), Name: r.of("*", "b", "bc")}}
}

func (r random) rules() (rules []flowcontrolv1.PolicyRulesWithSubjects) {
	for range r.IntN(3) {
		rule := flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{r.subject(), r.subject()}}
		for range r.IntN(3) {
			rule.ResourceRules = append(rule.ResourceRules, flowcontrolv1.ResourcePolicyRule{
				Verbs: r.some("*", "get", "list", "create"), APIGroups: r.some("*", "", "apps"), ClusterScope: r.IntN(2) == 0,
				Resources: r.some("*", "pods", "pods/log", "pods/status", "deployments"), Namespaces: r.some("*", "a", "ab"),
			})
			rule.NonResourceRules = append(rule.NonResourceRules, flowcontrolv1.NonResourcePolicyRule{
				Verbs: r.some("*", "get", "post"), NonResourceURLs: r.some("*", "/", "/a", "/a/", "/a/*", "/a/b", "/healthz", "/*"),
			})
		}
		rules = append(rules, rule)
	}
	return rules
}

func (r random) user() user.Info {
	return &user.DefaultInfo{
		Name:   r.of("jane", "system:serviceaccount:a:b", "system:serviceaccount:ab:b", "system:serviceaccount:a:bc", "system:serviceaccount:a", "system:serviceaccount::b", ""),
		Groups: r.some("devs", "system:masters", "system:authenticated", "*"),
	}
}

func (r random) request() api.RequestInfo {
	method := r.of("GET", "POST", "DELETE")
	if r.IntN(2) == 0 {
		return api.ParseRequestInfo(method, r.of("/", "/a", "/a/", "/a/b", "/ab", "/a//b", "/healthz", "/api", "/apis/apps/v1", "*", ""), "")
	}
	path := r.of("/api/v1", "/apis/apps/v1") + r.of("", "/namespaces/a", "/namespaces/ab") + r.of("/pods", "/deployments", "/pods/x", "/pods/x/log", "/pods/x/status", "/pods/x/statu", "/namespaces/a/status")
	return api.ParseRequestInfo(method, path, r.of("", "watch=1"))
}

// TestClassifyLikeTheLibrary classifies random requests by random configurations.
func TestClassifyLikeTheLibrary(t *testing.T) {
	seed := soak.Seed(t)
	r := random{rand.New(rand.NewPCG(seed, 0))}
	seen := make(map[string]int)
	for range soak.Cases(20, 1000) {
		objects := []runtime.Object{level("one", 10, reject), level("two", 10, flowcontrolv1.LimitResponse{
			Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 4, HandSize: 2, QueueLengthLimit: 5},
		})}
		for i := range r.IntN(5) {
			objects = append(objects, flowSchemaOf(fmt.Sprint("s", i), r.of("one", "two", "missing"), int32(r.IntN(3)), r.rules()...))
		}
		for _, mandatory := range []*flowcontrolv1.FlowSchema{bootstrap.MandatoryFlowSchemaExempt, bootstrap.MandatoryFlowSchemaCatchAll} {
			if r.IntN(2) == 0 {
				s := mandatory.DeepCopy()
				s.UID = types.UID("schema-" + s.Name)
				objects = append(objects, s)
			}
		}
		for _, mandatory := range []*flowcontrolv1.PriorityLevelConfiguration{bootstrap.MandatoryPriorityLevelConfigurationExempt, bootstrap.MandatoryPriorityLevelConfigurationCatchAll} {
			if r.IntN(2) == 0 {
				l := mandatory.DeepCopy()
				l.UID = types.UID("level-" + l.Name)
				objects = append(objects, l)
			}
		}
		t.Run("", func(t *testing.T) {
			c, _ := start(t, 100, objects...)
			for range 200 {
				u, info := r.user(), r.request()
				wantSchema, wantLevel := c.classified(u, &info)
				schema, level, full := c.Classify(u, &info)
				if schema != wantSchema || level != wantLevel || full {
					t.Fatalf("%+v, %+v: %q, %q, %v; want %q, %q", u, info, schema, level, full, wantSchema, wantLevel)
				}
				seen[schema]++
			}
		})
	}
	for _, name := range []string{"", "schema-s0", "schema-s1", "schema-exempt", "schema-catch-all"} {
		if seen[name] == 0 {
			t.Errorf("no request of the flow schema %q: %v", name, seen)
		}
	}
}

// everything matches all requests of a user.
func everything(name string) flowcontrolv1.PolicyRulesWithSubjects {
	return flowcontrolv1.PolicyRulesWithSubjects{
		Subjects:         []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}},
		ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}, ClusterScope: true}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
	}
}

var (
	jane = &user.DefaultInfo{Name: "jane", Groups: []string{user.AllAuthenticated}}
	root = &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}
)

// send sends a GET of all Pods through the Handler.
func send(c *Controller, u user.Info, next http.HandlerFunc) *httptest.ResponseRecorder {
	info := api.ParseRequestInfo("GET", "/api/v1/pods", "")
	ctx := apirequest.WithUser(context.Background(), u)
	ctx = apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{IsResourceRequest: true, Path: info.Path, Verb: info.Verb, APIVersion: "v1", Resource: "pods"})
	w := httptest.NewRecorder()
	c.Handler(next).ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/api/v1/pods", nil))
	return w
}

// TestServe: what is served without the Handler shares the seats of the level with requests that reach it.
func TestServe(t *testing.T) {
	for _, query := range []string{"", "watch=1"} {
		t.Run(query, func(t *testing.T) {
			// 1 of 10 shares, of which catch-all has 5 and exempt none.
			c, _ := start(t, 1, level("small", 1, reject), flowSchemaOf("jane", "small", 1000, everything("jane")))
			r := &api.Request{Method: "GET", Path: "/api/v1/pods", RawPath: "/api/v1/pods", RawQuery: query}
			full := func(u user.Info) bool {
				_, _, full := c.Classify(u, r.Info())
				return full
			}
			if full(jane) {
				t.Error("the idle level is full")
			}
			begun, end := make(chan struct{}), make(chan struct{})
			done := make(chan *httptest.ResponseRecorder)
			go func() {
				done <- send(c, jane, func(w http.ResponseWriter, _ *http.Request) {
					close(begun)
					<-end
					w.WriteHeader(http.StatusNoContent)
				})
			}()
			<-begun
			if !full(jane) || full(root) {
				t.Errorf("with one request: full %v, exempt %v", full(jane), full(root))
			}
			resp := c.Serve(t.Context(), jane, r, func() { t.Error("served above the limit") })
			other := send(c, jane, func(http.ResponseWriter, *http.Request) { t.Error("served above the limit") })
			if resp == nil || resp.Status != http.StatusTooManyRequests || string(resp.Body) != other.Body.String() || other.Code != resp.Status {
				t.Fatalf("%+v, %+v", resp, other)
			}
			for name := range other.Header() {
				if got, want := resp.Header.Get(name), other.Header().Get(name); got != want && !strings.HasPrefix(name, "X-Kubernetes-Pf-") {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			served := 0
			for range 5 {
				if resp := c.Serve(t.Context(), root, r, func() { served++ }); resp != nil {
					t.Errorf("the exempt level rejects: %+v", resp)
				}
			}
			close(end)
			first := <-done
			if first.Code != http.StatusNoContent || first.Header().Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) != "schema-jane" ||
				first.Header().Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID) != "level-small" {
				t.Errorf("%d, %v", first.Code, first.Header())
			}
			if full(jane) {
				t.Error("the level is full after its last request")
			}
			if resp := c.Serve(t.Context(), jane, r, func() {
				served++
				if !full(jane) {
					t.Error("a request that is served takes no seat")
				}
			}); resp != nil || served != 6 {
				t.Errorf("%+v, %d served", resp, served)
			}
		})
	}
}

// TestServePanics: a panic reaches the caller, and the seat is free again.
func TestServePanics(t *testing.T) {
	c, _ := start(t, 1, level("small", 1, reject), flowSchemaOf("jane", "small", 1000, everything("jane")))
	r := &api.Request{Method: "GET", Path: "/api/v1/pods", RawPath: "/api/v1/pods"}
	func() {
		defer func() {
			if recover() != "broken" {
				t.Error("no panic")
			}
		}()
		c.Serve(t.Context(), jane, r, func() { panic("broken") })
	}()
	if _, _, full := c.Classify(jane, r.Info()); full {
		t.Error("the seat is not free")
	}
}

// TestChanges: once the status of a FlowSchema says that its level exists, Classify uses it.
func TestChanges(t *testing.T) {
	c, client := start(t, 10)
	info := api.ParseRequestInfo("GET", "/version", "")
	if schema, level, _ := c.Classify(jane, &info); schema != "" || level != "" {
		t.Errorf("%q, %q", schema, level)
	}
	ctx, api := t.Context(), client.FlowcontrolV1()
	for i, name := range []string{"first", "second"} {
		if _, err := api.PriorityLevelConfigurations().Create(ctx, level(name, 1, reject), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := api.FlowSchemas().Create(ctx, flowSchemaOf(name, name, int32(1000-i), everything("jane")), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for {
			s, err := api.FlowSchemas().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Status.Conditions) > 0 && s.Status.Conditions[0].Status == flowcontrolv1.ConditionFalse {
				break
			}
			select {
			case <-ctx.Done():
				t.Fatal("no status")
			case <-time.After(time.Millisecond):
			}
		}
		if schema, level, _ := c.Classify(jane, &info); schema != "schema-"+name || level != "level-"+name {
			t.Errorf("%q, %q, want %s", schema, level, name)
		}
	}
}

func TestStats(t *testing.T) {
	o := Options{Count: func(gr schema.GroupResource) (objects, bytes int64, known bool) {
		return 10, 1000, gr == schema.GroupResource{Group: "apps", Resource: "deployments"}
	}}
	if got, err := o.stats("deployments.apps"); err != nil || got.ObjectCount != 10 || got.EstimatedAverageObjectSizeBytes != 100 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, o := range []Options{o, {}} {
		if got, err := o.stats("pods"); err != flowcontrolrequest.ObjectCountNotFoundErr {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// BenchmarkClassify classifies by the configuration of a new cluster.
func BenchmarkClassify(b *testing.B) {
	var objects []runtime.Object
	for _, all := range [][]*flowcontrolv1.FlowSchema{bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas} {
		for _, s := range all {
			objects = append(objects, s)
		}
	}
	for _, all := range [][]*flowcontrolv1.PriorityLevelConfiguration{bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations} {
		for _, l := range all {
			objects = append(objects, l)
		}
	}
	c, _ := start(b, 600, objects...)
	info := api.ParseRequestInfo("GET", "/api/v1/namespaces/default/pods/a", "")
	for name, u := range map[string]user.Info{
		"admin":           root,
		"user":            jane,
		"service-account": &user.DefaultInfo{Name: "system:serviceaccount:default:robot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:default", user.AllAuthenticated}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Classify(u, &info)
			}
		})
	}
}
