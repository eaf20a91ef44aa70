package standalone

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// TestPriorityAndFairnessLikeKubeAPIServer compares classification and limits, for requests that reach
// the API server and for reads from memory.
func TestPriorityAndFairnessLikeKubeAPIServer(t *testing.T) {
	compareScenarios(t, map[string]string{"max-requests-inflight": "40", "max-mutating-requests-inflight": "20"}, flowScenario, seatScenario, queueScenario, exemptScenario, dumpScenario)
}

// TestMaxInFlightLikeKubeAPIServer compares the limits without priority and fairness.
func TestMaxInFlightLikeKubeAPIServer(t *testing.T) {
	compareScenarios(t, map[string]string{"enable-priority-and-fairness": "false", "max-requests-inflight": "40", "max-mutating-requests-inflight": "1"}, inFlightScenario)
}

// compareScenarios runs scenarios with kube-apiserver and with kubeweir, and compares the responses.
func compareScenarios(t *testing.T, flags map[string]string, scenarios ...func(context.Context, *limited)) {
	paths, err := realkube.Binaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var responses []string
	for _, dir := range []string{filepath.Dir(paths.KubeAPIServer), assets(t.Context(), t)} {
		t.Run("", func(t *testing.T) {
			env := &envtest.Environment{BinaryAssetsDirectory: dir, ControlPlaneStartTimeout: time.Minute, ControlPlaneStopTimeout: time.Minute}
			arguments := env.ControlPlane.GetAPIServer().Configure().Set("authorization-mode", "Node,RBAC")
			for name, value := range flags {
				arguments.Set(name, value)
			}
			f := &limited{flagged: &flagged{T: t, env: env, admin: startEnvironment(t, env)}}
			f.prepare(t.Context())
			for _, scenario := range scenarios {
				scenario(t.Context(), f)
			}
			responses = append(responses, f.responses.String())
			t.Log("\n" + f.responses.String())
		})
	}
	if len(responses) == 2 && responses[0] != responses[1] {
		t.Errorf("kubeweir:\n%s\nkube-apiserver:\n%s", responses[1], responses[0])
	}
}

// limited is a running API server with a webhook that holds requests.
type limited struct {
	*flagged
	users map[string]*http.Client

	mu      sync.Mutex
	held    int           // requests at the webhook
	release chan struct{} // closed to let them go
}

// prepare creates users, the webhook and what the requests are about.
func (f *limited) prepare(ctx context.Context) {
	f.users = map[string]*http.Client{"admin": f.client(f.env.Config), "anonymous": f.client(rest.AnonymousClientConfig(f.env.Config))}
	for name, groups := range map[string][]string{"noxu": nil, "quinn": nil, "bob": {"devs"}, "system:node:mine": {"system:nodes"}, "system:kube-scheduler": nil} {
		user, err := f.env.AddUser(envtest.User{Name: name, Groups: groups}, nil)
		f.must(err)
		f.users[name] = f.client(user.Config())
	}
	for namespace, name := range map[string]string{"default": "robot", "kube-system": "generic-garbage-collector"} {
		_, err := f.admin.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		f.must(err)
		token, err := f.admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		f.must(err)
		config := rest.AnonymousClientConfig(f.env.Config)
		config.BearerToken = token.Status.Token
		f.users[name] = f.client(config)
	}
	_, err := f.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "limited"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "noxu"}, {APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "quinn"}},
	}, metav1.CreateOptions{})
	f.must(err)
	_, err = f.admin.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	f.must(err)
	f.startWebhook(ctx)
	f.must(testbed.Poll(ctx, time.Minute, func() error { // until RBAC knows the binding
		if r := f.send(ctx, "noxu", "GET", "/api/v1/namespaces/default/configmaps/one", ""); r.status != http.StatusOK {
			return fmt.Errorf("%+v", r)
		}
		return nil
	}))
}

func (f *limited) client(config *rest.Config) *http.Client {
	f.Helper()
	client, err := rest.HTTPClientFor(config)
	f.must(err)
	return client
}

// startWebhook starts a webhook that holds the creation of objects with the label hold.
func (f *limited) startWebhook(ctx context.Context) {
	f.release = make(chan struct{})
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			f.Error(err)
			return
		}
		f.mu.Lock()
		f.held++
		release := f.release
		f.mu.Unlock()
		<-release
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review)
	}))
	f.Cleanup(webhook.Close)
	f.Cleanup(f.letGo)
	_, err := f.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hold"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hold.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: ptr.To[int32](30),
			ClientConfig:   admissionregistrationv1.WebhookClientConfig{URL: ptr.To(webhook.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"hold": "true"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}, metav1.CreateOptions{})
	f.must(err)
	f.letGo()
	f.must(testbed.Poll(ctx, time.Minute, func() error { // until the webhook is called
		if r := f.hold(ctx, "admin", 1)(); f.holds() == 0 {
			return fmt.Errorf("the webhook is not called: %+v", r)
		}
		return nil
	}))
	f.mu.Lock()
	f.held, f.release = 0, make(chan struct{})
	f.mu.Unlock()
}

func (f *limited) holds() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held
}

// letGo lets the requests at the webhook go, and later ones pass.
func (f *limited) letGo() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.release:
	default:
		close(f.release)
	}
}

// limitedResponse is what is compared of a response.
type limitedResponse struct {
	status int
	body   string
	header http.Header
}

func (f *limited) send(ctx context.Context, user, method, path, body string) limitedResponse {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+strings.Trim(strings.TrimPrefix(f.env.Config.Host, "https:"), "/")+path, strings.NewReader(body))
	f.must(err)
	req.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := f.users[user].Do(req)
	if err != nil {
		return limitedResponse{body: err.Error()}
	}
	defer func() { _ = resp.Body.Close() }()
	r := limitedResponse{status: resp.StatusCode, header: resp.Header}
	if !strings.Contains(path, "watch=") || resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(resp.Body)
		f.must(err)
		r.body = string(text)
	}
	return r
}

// hold starts n requests of a user that the webhook holds. The function that it returns waits for them.
func (f *limited) hold(ctx context.Context, user string, n int) (wait func() []limitedResponse) {
	responses := make([]limitedResponse, n)
	var all sync.WaitGroup
	for i := range responses {
		all.Go(func() {
			// The client of the request before may have its response before the request has given back its place.
			for {
				responses[i] = f.send(ctx, user, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"generateName":"held-","labels":{"hold":"true"}}}`)
				if responses[i].status != http.StatusTooManyRequests || f.holds() >= n || ctx.Err() != nil {
					break
				}
			}
		})
	}
	return func() []limitedResponse {
		all.Wait()
		return responses
	}
}

// holding runs while while the webhook holds n requests of a user, and records their responses.
func (f *limited) holding(ctx context.Context, user string, n int, while func()) {
	f.Helper()
	f.mu.Lock()
	f.held, f.release = 0, make(chan struct{})
	f.mu.Unlock()
	wait := f.hold(ctx, user, n)
	f.must(testbed.Poll(ctx, time.Minute, func() error {
		if held := f.holds(); held < n {
			return fmt.Errorf("%d of %d requests are at the webhook", held, n)
		}
		return nil
	}))
	while()
	f.letGo()
	for _, r := range wait() {
		f.note(ctx, user+" after the webhook", limitedResponse{status: r.status, header: r.header})
	}
}

// note records a response with the names of its flow schema and priority level.
func (f *limited) note(ctx context.Context, request string, r limitedResponse) {
	f.Helper()
	names := func(header string, list func() (map[string]string, error)) string {
		uid := r.header.Get(header)
		if uid == "" {
			return "-"
		}
		all, err := list()
		f.must(err)
		return all[uid]
	}
	schema := names(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID, func() (map[string]string, error) {
		list, err := f.admin.FlowcontrolV1().FlowSchemas().List(ctx, metav1.ListOptions{})
		out := make(map[string]string)
		for _, o := range list.Items {
			out[string(o.UID)] = o.Name
		}
		return out, err
	})
	level := names(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID, func() (map[string]string, error) {
		list, err := f.admin.FlowcontrolV1().PriorityLevelConfigurations().List(ctx, metav1.ListOptions{})
		out := make(map[string]string)
		for _, o := range list.Items {
			out[string(o.UID)] = o.Name
		}
		return out, err
	})
	found := []any{r.status, schema, level}
	if r.status == http.StatusTooManyRequests {
		for _, name := range []string{"Content-Type", "Cache-Control", "X-Content-Type-Options"} {
			found = append(found, r.header.Get(name))
		}
		found = append(found, r.header.Get("Retry-After") != "", r.header.Get("Audit-Id") != "", r.body)
	}
	f.record(request, nil, found...)
}

var (
	// limitedReads are served from memory by kubeweir, limitedOthers are not.
	limitedReads = []string{
		"GET /api/v1/namespaces/default/configmaps/one", "GET /api/v1/namespaces/default/configmaps/one?resourceVersion=0",
		"GET /api/v1/namespaces/default/configmaps/none", "GET /api/v1/namespaces/default/configmaps", "GET /api/v1/configmaps?resourceVersion=0",
		"GET /api/v1/configmaps?watch=1", "GET /apis/rbac.authorization.k8s.io/v1/clusterroles", "GET /api/v1/namespaces/default/configmaps?limit=1",
		"GET /api/v1/namespaces/kube-system/secrets/none", "GET /api/v1/nodes/mine", "GET /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler",
	}
	limitedOthers = []string{
		"GET /version", "GET /healthz", "GET /readyz", "GET /api", "GET /apis/apps/v1", "GET /nothing", "GET /apis/none.example/v1/things", "GET /openapi/v3",
		"PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler", "PATCH /api/v1/nodes/mine/status",
		"GET /api/v1/namespaces/default/pods/none/log", "GET /api/v1/namespaces/default/pods/none/status",
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "DELETE /api/v1/namespaces/default/configmaps/none", "OPTIONS /api/v1/pods",
	}
)

// flowScenario records the flow schema and the priority level of requests of several users.
func flowScenario(ctx context.Context, f *limited) {
	f.configure(ctx, "one-seat", "noxu", flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject})
	for _, user := range slices.Sorted(maps.Keys(f.users)) {
		for _, line := range slices.Concat(limitedReads, limitedOthers) {
			method, path, _ := strings.Cut(line, " ")
			f.note(ctx, user+" "+line, f.send(ctx, user, method, path, "{}"))
		}
	}
	f.wants("admin GET /version: 200 exempt exempt", "noxu GET /api/v1/configmaps?resourceVersion=0: 200 one-seat one-seat", "anonymous GET /healthz: 200 probes exempt",
		"system:node:mine GET /api/v1/nodes/mine: 404 system-node-high node-high", "robot GET /version: 200 service-accounts workload-low")
}

// configure creates a priority level with one seat for the requests of a user, and waits until it is in use.
func (f *limited) configure(ctx context.Context, name, user string, response flowcontrolv1.LimitResponse) {
	f.Helper()
	_, err := f.admin.FlowcontrolV1().PriorityLevelConfigurations().Create(ctx, &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: ptr.To[int32](1), LendablePercent: ptr.To[int32](0), BorrowingLimitPercent: ptr.To[int32](0), LimitResponse: response,
		}},
	}, metav1.CreateOptions{})
	f.must(err)
	_, err = f.admin.FlowcontrolV1().FlowSchemas().Create(ctx, &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name}, MatchingPrecedence: 1000,
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:         []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}}},
				ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}, ClusterScope: true}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
			}},
		},
	}, metav1.CreateOptions{})
	f.must(err)
	f.must(testbed.Poll(ctx, time.Minute, func() error {
		s, err := f.admin.FlowcontrolV1().FlowSchemas().Get(ctx, name, metav1.GetOptions{})
		if err == nil && (len(s.Status.Conditions) == 0 || s.Status.Conditions[0].Status != flowcontrolv1.ConditionFalse) {
			err = fmt.Errorf("%+v", s.Status)
		}
		return err
	}))
}

// settle waits until no request of a user is in flight at the server: it ends after its client has the response.
func (f *limited) settle(ctx context.Context, user string) {
	f.Helper()
	f.must(testbed.Poll(ctx, time.Minute, func() error {
		if r := f.send(ctx, user, "GET", "/api/v1/namespaces/default/configmaps/one", ""); r.status != http.StatusOK {
			return fmt.Errorf("%+v", r)
		}
		return nil
	}))
}

// seatScenario sends requests to a priority level whose only seat is taken.
func seatScenario(ctx context.Context, f *limited) {
	f.settle(ctx, "noxu")
	f.holding(ctx, "noxu", 1, func() {
		for _, line := range slices.Concat(limitedReads, limitedOthers) {
			method, path, _ := strings.Cut(line, " ")
			f.note(ctx, "full: "+line, f.send(ctx, "noxu", method, path, "{}"))
			if user := "bob"; !strings.Contains(path, "watch") {
				f.note(ctx, "another level: "+line, f.send(ctx, user, method, path, "{}"))
			}
		}
	})
	f.settle(ctx, "noxu")
	f.wants("full: GET /api/v1/namespaces/default/configmaps/one: 429 one-seat one-seat", "full: GET /api/v1/configmaps?watch=1: 429", "full: GET /healthz: 200 probes exempt",
		"full: GET /version: 429 one-seat one-seat", "Too many requests, please try again later.", "noxu after the webhook: 201 one-seat one-seat")
}

// queueScenario sends requests to a priority level whose only seat is taken, and whose queue has one place.
func queueScenario(ctx context.Context, f *limited) {
	f.configure(ctx, "one-queue", "quinn", flowcontrolv1.LimitResponse{
		Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 1, HandSize: 1, QueueLengthLimit: 1},
	})
	for _, line := range []string{"GET /api/v1/namespaces/default/configmaps/one?resourceVersion=0", "GET /api/v1/configmaps?resourceVersion=0&watch=1", "GET /version"} {
		method, path, _ := strings.Cut(line, " ")
		waiting := make(chan limitedResponse, 1)
		f.settle(ctx, "quinn")
		f.holding(ctx, "quinn", 1, func() {
			go func() { waiting <- f.send(ctx, "quinn", method, path, "") }()
			f.must(testbed.Poll(ctx, time.Minute, func() error {
				if row := f.levelRow(ctx, "one-queue"); row[4] != "1" {
					return fmt.Errorf("%q", row)
				}
				return nil
			}))
			f.record("levels", nil, f.levelRow(ctx, "one-queue")[:6])
			for _, other := range []string{"/api/v1/namespaces/default/configmaps/one?resourceVersion=0", "/version"} {
				f.note(ctx, "queue is full: GET "+other, f.send(ctx, "quinn", "GET", other, ""))
			}
		})
		f.note(ctx, "waited: "+line, <-waiting)
	}
	f.wants("queue is full: GET /version: 429 one-queue one-queue", "waited: GET /version: 200 one-queue one-queue", "waited: GET /api/v1/namespaces/default/configmaps/one?resourceVersion=0: 200 one-queue one-queue")
}

// exemptScenario has more requests of an administrator in flight than there are seats.
func exemptScenario(ctx context.Context, f *limited) {
	f.holding(ctx, "admin", 70, func() {
		for _, line := range limitedReads[:3] {
			f.note(ctx, "admin: "+line, f.send(ctx, "admin", "GET", strings.TrimPrefix(line, "GET "), ""))
		}
	})
	f.wants("admin after the webhook: 201 exempt exempt")
}

// levelRow returns the row of a priority level in dump_priority_levels.
func (f *limited) levelRow(ctx context.Context, name string) []string {
	f.Helper()
	r := f.send(ctx, "admin", "GET", "/debug/api_priority_and_fairness/dump_priority_levels", "")
	for line := range strings.Lines(r.body) {
		if row := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), " ", ""), ","); row[0] == name {
			return row
		}
	}
	f.Fatalf("no level %s: %+v", name, r)
	return nil
}

// varies matches times and addresses.
var varies = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z?|0x[0-9a-f]+`)

// dumpScenario reads the state of the queues, and metrics, while a request is served.
func dumpScenario(ctx context.Context, f *limited) {
	const dumps = "/debug/api_priority_and_fairness/"
	f.settle(ctx, "noxu")
	f.holding(ctx, "noxu", 1, func() {
		for _, name := range []string{"dump_priority_levels", "dump_queues", "dump_requests", "dump_requests?includeRequestDetails=1"} {
			r := f.send(ctx, "admin", "GET", dumps+name, "")
			var rows []string
			for line := range strings.Lines(r.body) {
				fields := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), " ", ""), ",")
				switch {
				case len(rows) == 0: // the head
				case fields[0] != "one-seat" && name == "dump_priority_levels":
					fields = fields[:1] // others serve requests of controllers
				case fields[0] != "one-seat":
					continue
				case name == "dump_priority_levels":
					fields = append(fields[:6], fields[7:]...) // fewer requests are dispatched, because of reads from memory
				}
				rows = append(rows, varies.ReplaceAllString(strings.Join(fields, ","), "TIME"))
			}
			f.note(ctx, name, limitedResponse{status: r.status, header: r.header})
			f.record(name, nil, r.header.Get("Content-Type"), rows)
			f.note(ctx, "bob "+name, f.send(ctx, "bob", "GET", dumps+name, ""))
			f.note(ctx, "anonymous "+name, f.send(ctx, "anonymous", "GET", dumps+name, ""))
		}
		metrics := f.send(ctx, "admin", "GET", "/metrics", "").body
		for line := range strings.Lines(metrics) {
			name, _, _ := strings.Cut(line, "{")
			switch {
			case strings.HasPrefix(line, "# TYPE apiserver_flowcontrol_"):
				f.record("metric", nil, strings.TrimSpace(line))
			case strings.Contains(line, `"one-seat"`) && slices.Contains([]string{
				"apiserver_flowcontrol_current_executing_requests", "apiserver_flowcontrol_current_executing_seats", "apiserver_flowcontrol_nominal_limit_seats",
				"apiserver_flowcontrol_rejected_requests_total", "apiserver_flowcontrol_current_limit_seats", "apiserver_flowcontrol_lower_limit_seats", "apiserver_flowcontrol_upper_limit_seats",
			}, name):
				f.record("metric", nil, strings.TrimSpace(line))
			}
		}
	})
	f.wants("bob dump_queues: 403 global-default global-default", "anonymous dump_requests: 403 global-default global-default",
		`apiserver_flowcontrol_current_executing_requests{flow_schema="one-seat",priority_level="one-seat"} 1`, "one-seat,0,false,false,0,1")
}

// inFlightScenario sends requests while the only slot of requests that change objects is taken.
func inFlightScenario(ctx context.Context, f *limited) {
	f.holding(ctx, "noxu", 1, func() {
		for _, line := range slices.Concat(limitedReads, limitedOthers) {
			method, path, _ := strings.Cut(line, " ")
			for _, user := range []string{"noxu", "admin"} {
				f.note(ctx, user+" "+line, f.send(ctx, user, method, path, "{}"))
			}
		}
	})
	r := f.send(ctx, "admin", "GET", "/debug/api_priority_and_fairness/dump_queues", "")
	f.record("dump_queues", nil, r.status)
	f.wants("noxu DELETE /api/v1/namespaces/default/configmaps/none: 429 - -", "admin DELETE /api/v1/namespaces/default/configmaps/none: 404 - -", "noxu GET /api/v1/configmaps?resourceVersion=0: 200 - -")
}
