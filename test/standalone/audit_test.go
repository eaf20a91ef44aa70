package standalone

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// auditPolicy has all kinds of rules.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- {level: None, users: ["system:apiserver"]}
- {level: None, nonResourceURLs: ["/readyz*", "/livez*"]}
- {level: None, resources: [{resources: [configmaps], resourceNames: [silent]}]}
- {level: Metadata, namespaces: [default], resources: [{resources: [secrets]}]}
- {level: Request, resources: [{resources: [secrets]}]}
- {level: RequestResponse, omitManagedFields: false, resources: [{resources: [configmaps], resourceNames: [managed]}]}
- {level: Metadata, userGroups: [devs], verbs: [list]}
- {level: RequestResponse, resources: [{resources: [configmaps, pods, "pods/exec", "pods/log", namespaces]}]}
- {level: RequestResponse, omitStages: [RequestReceived], resources: [{group: apps, resources: ["*"]}]}
- {level: Request, omitStages: [ResponseComplete], resources: [{group: coordination.k8s.io}]}
- {level: RequestResponse, nonResourceURLs: ["/version", "/api*"]}
- {level: Metadata}
`

// audited is a request whose events are compared.
type audited struct {
	name   string
	as     string // a user; "" is the administrator
	method string
	path   string
	body   string
	header map[string]string
	events int // of kube-apiserver
}

const (
	maps1   = "/api/v1/namespaces/audited/configmaps"
	secrets = "/api/v1/namespaces/%s/secrets"
	patched = "application/merge-patch+json"
	applied = "application/apply-patch+yaml"
)

var auditedRequests = []audited{
	{name: "create", method: "POST", path: maps1, body: `{"metadata":{"name":"a"},"data":{"k":"v"}}`, events: 2},
	{name: "create again", method: "POST", path: maps1, body: `{"metadata":{"name":"a"}}`, events: 2},
	{name: "create managed", method: "POST", path: maps1, body: `{"metadata":{"name":"managed"}}`, events: 2},
	{name: "generate", method: "POST", path: maps1 + "?dryRun=All", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dry"}}`, events: 2},
	{name: "invalid", method: "POST", path: maps1, body: `{"metadata":{"name":"NO"}}`, events: 2},
	{name: "no JSON", method: "POST", path: maps1, body: `{`, events: 2},
	{name: "yaml", method: "POST", path: maps1, body: "metadata: {name: yaml}\ndata: {a: b}\n", header: map[string]string{"Content-Type": "application/yaml"}, events: 2},
	{name: "list", method: "GET", path: maps1, events: 2},
	{name: "get", method: "GET", path: maps1 + "/a", events: 2},
	{name: "get cached", method: "GET", path: maps1 + "/a?resourceVersion=0", events: 2},
	{name: "get managed", method: "GET", path: maps1 + "/managed?resourceVersion=0", events: 2},
	{name: "get protobuf", method: "GET", path: maps1 + "/a?resourceVersion=0", header: map[string]string{"Accept": "application/vnd.kubernetes.protobuf"}, events: 2},
	{name: "get yaml", method: "GET", path: maps1 + "/a?resourceVersion=0", header: map[string]string{"Accept": "application/yaml"}, events: 2},
	{name: "get pretty", method: "GET", path: maps1 + "/a?pretty=true", events: 2},
	{name: "get metadata", method: "GET", path: maps1 + "/a", header: map[string]string{"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}, events: 2},
	{name: "get missing", method: "GET", path: maps1 + "/missing", events: 2},
	{name: "get missing protobuf", method: "GET", path: maps1 + "/missing?resourceVersion=0", header: map[string]string{"Accept": "application/vnd.kubernetes.protobuf"}, events: 2},
	{name: "get silent", method: "GET", path: maps1 + "/silent", events: 0},
	{name: "list cached", method: "GET", path: maps1 + "?resourceVersion=0&labelSelector=a%3Db", events: 2},
	{name: "list by name", method: "GET", path: maps1 + "?fieldSelector=metadata.name%3Da", events: 2},
	{name: "list table", method: "GET", path: maps1 + "?resourceVersion=0", header: map[string]string{"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}, events: 2},
	{name: "list page", method: "GET", path: maps1 + "?limit=1&fieldSelector=metadata.name%3Da", events: 2},
	{name: "bad selector", method: "GET", path: maps1 + "?labelSelector=!!", events: 2},
	{name: "bad version", method: "GET", path: maps1 + "?resourceVersion=x", events: 2},
	{name: "watch", method: "GET", path: maps1 + "?watch=true&timeoutSeconds=1", events: 3},
	{name: "watch cached", method: "GET", path: maps1 + "?watch=true&resourceVersion=0&timeoutSeconds=1", events: 3},
	{name: "watch forbidden", as: "jane", method: "GET", path: maps1 + "?watch=true", events: 3},
	{name: "patch", method: "PATCH", path: maps1 + "/a", body: `{"data":{"k":"w"}}`, header: map[string]string{"Content-Type": patched}, events: 2},
	{name: "apply", method: "PATCH", path: maps1 + "/applied?fieldManager=x", body: "apiVersion: v1\nkind: ConfigMap\ndata: {x: y}\n", header: map[string]string{"Content-Type": applied}, events: 2},
	{name: "patch dry", method: "PATCH", path: maps1 + "/a?dryRun=All", body: `{"data":{"k":"x"}}`, header: map[string]string{"Content-Type": patched}, events: 2},
	{name: "update", method: "PUT", path: maps1 + "/a", body: `{"metadata":{"name":"a"},"data":{"k":"z"}}`, events: 2},
	{name: "conflict", method: "PUT", path: maps1 + "/a", body: `{"metadata":{"name":"a","resourceVersion":"1"}}`, events: 2},
	{name: "delete", method: "DELETE", path: maps1 + "/yaml", events: 2},
	{name: "delete with options", method: "DELETE", path: maps1 + "/a", body: `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}`, events: 2},
	{name: "delete missing", method: "DELETE", path: maps1 + "/a", events: 2},
	{name: "delete all", method: "DELETE", path: maps1 + "?labelSelector=no%3Dne", events: 2},
	{name: "secret", method: "POST", path: fmt.Sprintf(secrets, "default"), body: `{"metadata":{"name":"s"},"stringData":{"password":"hidden"}}`, events: 2},
	{name: "secret read", method: "GET", path: fmt.Sprintf(secrets, "default") + "/s", events: 2},
	{name: "secret at level Request", method: "POST", path: fmt.Sprintf(secrets, "audited"), body: `{"metadata":{"name":"s"},"stringData":{"password":"shown"}}`, events: 2},
	{name: "secret read at level Request", method: "GET", path: fmt.Sprintf(secrets, "audited") + "/s", events: 2},
	{name: "deployment", method: "GET", path: "/apis/apps/v1/namespaces/audited/deployments", events: 1},
	{name: "lease", method: "POST", path: "/apis/coordination.k8s.io/v1/namespaces/audited/leases", body: `{"metadata":{"name":"l"}}`, events: 1},
	{name: "forbidden", as: "jane", method: "GET", path: maps1 + "/managed", events: 2},
	{name: "forbidden cached", as: "jane", method: "GET", path: maps1 + "?resourceVersion=0", events: 2},
	{name: "forbidden write", as: "jane", method: "POST", path: maps1, body: `{"metadata":{"name":"jane"}}`, events: 2},
	{name: "forbidden delete", as: "jane", method: "DELETE", path: maps1 + "/managed", events: 2},
	{name: "forbidden path", as: "jane", method: "GET", path: "/metrics", events: 2},
	{name: "unauthenticated", as: "nobody", method: "GET", path: maps1, events: 1},
	{name: "unauthenticated write", as: "nobody", method: "POST", path: maps1, body: `{}`, events: 1},
	{name: "anonymous", as: "anonymous", method: "GET", path: maps1, events: 2},
	{name: "impersonation", method: "GET", path: maps1, header: map[string]string{"Impersonate-User": "jane", "Impersonate-Group": "devs", "Impersonate-Extra-Scope": "some"}, events: 2},
	{name: "impersonation of an administrator", method: "GET", path: maps1 + "/managed?resourceVersion=0", header: map[string]string{"Impersonate-User": "root", "Impersonate-Group": "system:masters"}, events: 2},
	{name: "impersonated write", method: "POST", path: maps1, body: `{"metadata":{"name":"root"}}`, header: map[string]string{"Impersonate-User": "root", "Impersonate-Group": "system:masters"}, events: 2},
	{name: "forbidden impersonation", as: "jane", method: "GET", path: maps1, header: map[string]string{"Impersonate-User": "root"}, events: 2},
	{name: "incomplete impersonation", method: "GET", path: maps1, header: map[string]string{"Impersonate-Group": "root"}, events: 2},
	{name: "exec forbidden", as: "jane", method: "POST", path: "/api/v1/namespaces/audited/pods/p/exec?command=id", events: 3},
	{name: "exec without a pod", method: "POST", path: "/api/v1/namespaces/audited/pods/p/exec?command=id", events: 3},
	{name: "exec upgrade without a pod", method: "GET", path: "/api/v1/namespaces/audited/pods/p/exec?command=id",
		header: map[string]string{"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}, events: 3},
	{name: "log without a pod", method: "GET", path: "/api/v1/namespaces/audited/pods/p/log", events: 3},
	{name: "port-forward without a pod", method: "POST", path: "/api/v1/namespaces/audited/pods/p/portforward", events: 3},
	{name: "bad timeout", method: "GET", path: maps1 + "?timeout=x", events: 1},
	{name: "version", method: "GET", path: "/version", events: 2},
	{name: "groups", method: "GET", path: "/api", events: 2},
	{name: "resources", method: "GET", path: "/api/v1", header: map[string]string{"Accept": "application/json"}, events: 2},
	{name: "openapi", method: "GET", path: "/openapi/v3", events: 2},
	{name: "readyz", method: "GET", path: "/readyz", events: 0},
	{name: "healthz", method: "GET", path: "/healthz", events: 2},
	{name: "unknown path", method: "GET", path: "/unknown", events: 2},
	{name: "unknown resource", method: "GET", path: "/api/v1/namespaces/audited/nothing", events: 2},
	{name: "many addresses", method: "GET", path: maps1 + "/managed", header: map[string]string{"X-Forwarded-For": "192.0.2.1, 192.0.2.2", "User-Agent": strings.Repeat("x", 2000)}, events: 2},
	{name: "admission", method: "POST", path: "/api/v1/namespaces/audited/pods", events: 2,
		body: `{"metadata":{"name":"p"},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}}`},
	{name: "admission rejects", method: "POST", path: "/api/v1/namespaces/restricted/pods", events: 2,
		body: `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}}`},
	{name: "a validating policy", method: "POST", path: maps1, body: `{"metadata":{"name":"refused","labels":{"refuse":"me"}}}`, events: 2},
}

// auditedClient returns a client of a user.
func (f *flagged) auditedClient(user string) (*http.Client, *rest.Config) {
	f.Helper()
	config := rest.CopyConfig(f.env.Config)
	switch user {
	case "":
	case "anonymous":
		config = rest.AnonymousClientConfig(f.env.Config)
	case "nobody":
		config = rest.AnonymousClientConfig(f.env.Config)
		config.BearerToken = "nobody's"
	default:
		added, err := f.env.AddUser(envtest.User{Name: user, Groups: []string{"devs"}}, nil)
		f.must(err)
		config = added.Config()
	}
	config.NextProtos = []string{"http/1.1"} // for upgrades
	client, err := rest.HTTPClientFor(config)
	f.must(err)
	return client, config
}

// requests sends requests, each with its name as Audit-Id.
func (f *flagged) requests(ctx context.Context, list []audited) {
	f.Helper()
	clients := make(map[string]*http.Client)
	for _, r := range list {
		client := clients[r.as]
		if client == nil {
			client, _ = f.auditedClient(r.as)
			clients[r.as] = client
			defer client.CloseIdleConnections()
		}
		req, err := http.NewRequestWithContext(ctx, r.method, strings.TrimSuffix(f.env.Config.Host, "/")+r.path, strings.NewReader(r.body))
		f.must(err)
		if r.body == "" {
			req.Body, req.ContentLength = http.NoBody, 0
		}
		req.Header.Set("Audit-Id", r.name)
		req.Header.Set("User-Agent", "auditor")
		if r.body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		for name, value := range r.header {
			req.Header.Set(name, value)
		}
		resp, err := client.Do(req)
		f.must(err)
		_, err = io.Copy(io.Discard, resp.Body)
		f.must(err)
		_ = resp.Body.Close()
	}
}

// events waits until the log has as many events of the requests as expected, and returns them by request.
func events(ctx context.Context, t *testing.T, log string, list []audited) map[string][]string {
	t.Helper()
	var found map[string][]string
	err := testbed.Poll(ctx, 20*time.Second, func() error {
		found = make(map[string][]string)
		content, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(content)) {
			var e map[string]any
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				return err
			}
			id, _ := e["auditID"].(string)
			text, err := json.MarshalIndent(normalized(t, "", e), "", " ")
			if err != nil {
				return err
			}
			found[id] = append(found[id], string(text))
		}
		for _, r := range list {
			if len(found[r.name]) != r.events {
				return fmt.Errorf("%s: %d events, want %d:\n%s", r.name, len(found[r.name]), r.events, strings.Join(found[r.name], "\n"))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return found
}

// normalized removes what differs between two servers.
func normalized(t *testing.T, key string, v any) any {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any)
		for name, value := range v {
			switch {
			case strings.HasPrefix(name, "kubeweir/"), strings.HasPrefix(name, "apiserver.latency.k8s.io/"):
			case key == "extra" && name == "authentication.kubernetes.io/credential-id":
			case name == "serverAddress":
			default:
				if n := normalized(t, name, value); n != nil {
					out[name] = n
				}
			}
		}
		if len(out) == 0 && (key == "annotations" || key == "extra") {
			return nil
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = normalized(t, key, v[i])
		}
		return out
	case string:
		switch key {
		case "uid", "resourceVersion", "creationTimestamp", "time", "requestReceivedTimestamp", "stageTimestamp", "continue":
			return "<" + key + ">"
		case "cells":
			if _, err := time.ParseDuration(v); err == nil {
				return "<age>"
			}
		}
	}
	return v
}

// TestAuditLikeKubeAPIServer compares the events of kubeweir and kube-apiserver with the same policy and
// the same requests.
func TestAuditLikeKubeAPIServer(t *testing.T) {
	policy := writeFile(t, filepath.Join(t.TempDir(), "policy.yaml"), auditPolicy)
	paths, err := realkube.Binaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := func(program, dir string) (all map[string][]string) {
		t.Run(program, func(t *testing.T) {
			env := &envtest.Environment{BinaryAssetsDirectory: dir, ControlPlaneStartTimeout: time.Minute, ControlPlaneStopTimeout: time.Minute}
			log := filepath.Join(t.TempDir(), "audit.log")
			env.ControlPlane.GetAPIServer().Configure().Set("audit-policy-file", policy).Set("audit-log-path", log).
				Set("authorization-mode", "RBAC").Set("anonymous-auth", "true").Set("disable-admission-plugins", "ServiceAccount")
			f := &flagged{T: t, env: env, admin: startEnvironment(t, env)}
			prepareAudited(t.Context(), f)
			f.requests(t.Context(), auditedRequests)
			all = events(t.Context(), t, log, auditedRequests)
		})
		return all
	}
	theirs := found("kube-apiserver", filepath.Dir(paths.KubeAPIServer))
	ours := found("kubeweir", assets(t.Context(), t))
	var text strings.Builder
	for _, r := range auditedRequests {
		if diff := cmp.Diff(theirs[r.name], ours[r.name]); diff != "" {
			t.Errorf("%s (-kube-apiserver +kubeweir):\n%s", r.name, diff)
		}
		for _, e := range ours[r.name] {
			text.WriteString(e)
		}
	}
	for _, part := range []string{`"password": "c2hvd24="`, "audit-violations", `"validation.policy.admission.k8s.io/validation_failure"`, `"username": "root"`, `"stage": "ResponseStarted"`} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("no event has %s", part)
		}
	}
	if strings.Contains(text.String(), "aGlkZGVu") {
		t.Error("a Secret at level Metadata is in the log")
	}
}

// prepareAudited creates the namespaces and the policy of the requests.
func prepareAudited(ctx context.Context, f *flagged) {
	client, _ := f.auditedClient("")
	defer client.CloseIdleConnections()
	send := func(path, body string) (int, string) {
		req, err := http.NewRequestWithContext(ctx, "POST", strings.TrimSuffix(f.env.Config.Host, "/")+path, strings.NewReader(body))
		f.must(err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		f.must(err)
		content, err := io.ReadAll(resp.Body)
		f.must(err)
		_ = resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("Warning") + string(content)
	}
	for path, bodies := range map[string][]string{
		"/api/v1/namespaces": {
			`{"metadata":{"name":"audited","labels":{"pod-security.kubernetes.io/audit":"restricted"}}}`,
			`{"metadata":{"name":"restricted","labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`,
		},
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies": {`{"metadata":{"name":"refuse"},"spec":{"failurePolicy":"Fail",
			"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},
			"validations":[{"expression":"!has(object.metadata.labels) || !('refuse' in object.metadata.labels)","message":"no labels"}],
			"auditAnnotations":[{"key":"seen","valueExpression":"'name: ' + object.metadata.name"}]}}`},
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings": {
			`{"metadata":{"name":"refuse"},"spec":{"policyName":"refuse","validationActions":["Warn","Audit"]}}`,
		},
	} {
		for _, body := range bodies {
			if code, text := send(path, body); code != http.StatusCreated {
				f.Fatalf("%s: %d %s", path, code, text)
			}
		}
	}
	f.must(testbed.Poll(ctx, time.Minute, func() error {
		code, text := send("/api/v1/namespaces/audited/configmaps?dryRun=All", `{"metadata":{"name":"try","labels":{"refuse":"me"}}}`)
		if code != http.StatusCreated || !strings.Contains(text, "no labels") {
			return fmt.Errorf("the policy is not in force: %d %s", code, text)
		}
		return nil
	}))
}

// TestAuditFaults checks that faults of the audit settings end the start with one sentence that names the
// flag and the file.
func TestAuditFaults(t *testing.T) {
	dir := t.TempDir()
	junk := writeFile(t, filepath.Join(dir, "junk.yaml"), "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Some}]\n")
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"--audit-log-path=-", "--audit-policy-file=" + junk}, 2, []string{"--audit-policy-file", junk, `Unsupported value: "Some"`}},
		{[]string{"--audit-log-path=-", "--audit-policy-file=" + dir + "/none"}, 2, []string{"--audit-policy-file", dir + "/none"}},
		{[]string{"--audit-webhook-config-file=" + junk}, 2, []string{"--audit-webhook-config-file", junk}},
		{[]string{"--audit-log-path=" + dir}, 2, []string{"--audit-log-path", dir}},
		{[]string{"--audit-log-path=/proc/kubeweir/audit.log"}, 2, []string{"--audit-log-path", "/proc/kubeweir"}},
		{[]string{"--audit-log-path=/proc/kubeweir-audit.log"}, 1, []string{"--audit-log-path", "/proc/kubeweir-audit.log"}},
		{[]string{"--audit-log-path=-", "--audit-log-mode=later"}, 2, []string{"--audit-log-mode", "later"}},
	} {
		p := launch(t, filepath.Join(t.TempDir(), "data"), c.args...)
		code, text := p.exit(), strings.TrimSpace(p.stderr.String())
		last := text[strings.LastIndexByte(text, '\n')+1:]
		for _, want := range c.want {
			if code != c.code || !strings.Contains(last, want) {
				t.Errorf("%q: exit code %d, want %d, and %q in\n%s", c.args, code, c.code, want, text)
			}
		}
	}
}
