package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// auditedNamespace is the namespace of requests that are recorded with their bodies.
const auditedNamespace = "audited"

// auditRules are rules of both servers for that namespace.
const auditRules = `
- {level: Metadata, namespaces: [audited], resources: [{resources: [secrets]}], omitStages: []}
- {level: RequestResponse, namespaces: [audited], omitManagedFields: true, omitStages: []}
`

type auditedRequest struct {
	name   string
	events int
	header map[string]string
	token  func() string
	request
}

// auditedRequests are sent to each server; SIDE is its name.
func auditedRequests() []auditedRequest {
	maps := configMapsIn(auditedNamespace)
	secrets := "/api/v1/namespaces/" + auditedNamespace + "/secrets"
	body := func(name string) string {
		return `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"` + name + `","namespace":"audited"},"data":{"k":"v"}}`
	}
	alice := func() string { return kube.Token(realkube.Alice) }
	return []auditedRequest{
		{name: "create", events: 2, request: request{method: "POST", path: maps, typ: typeJSON, body: body("SIDE")}},
		{name: "create again", events: 2, request: request{method: "POST", path: maps, typ: typeJSON, body: body("SIDE")}},
		{name: "dry run", events: 2, request: request{method: "POST", path: maps + "?dryRun=All", typ: typeJSON, body: body("SIDE-dry")}},
		{name: "yaml", events: 2, request: request{method: "POST", path: maps, typ: "application/yaml", body: body("SIDE-yaml")}},
		{name: "list by name", events: 2, request: request{path: maps + "?fieldSelector=metadata.name%3DSIDE"}},
		{name: "get", events: 2, request: request{path: maps + "/SIDE"}},
		{name: "get cached", events: 2, request: request{path: maps + "/SIDE?resourceVersion=0"}},
		{name: "get protobuf", events: 2, request: request{path: maps + "/SIDE?resourceVersion=0", accept: "application/vnd.kubernetes.protobuf"}},
		{name: "get yaml", events: 2, request: request{path: maps + "/SIDE", accept: "application/yaml"}},
		{name: "get missing", events: 2, request: request{path: maps + "/missing?resourceVersion=0"}},
		{name: "watch", events: 3, request: request{path: maps + "?watch=true&resourceVersion=0&timeoutSeconds=1"}},
		{name: "patch", events: 2, request: request{method: "PATCH", path: maps + "/SIDE", typ: "application/merge-patch+json", body: `{"data":{"k":"w"}}`}},
		{name: "apply", events: 2, request: request{method: "PATCH", path: maps + "/SIDE-applied?fieldManager=x", typ: "application/apply-patch+yaml", body: "kind: ConfigMap\napiVersion: v1\ndata: {a: b}\n"}},
		{name: "delete", events: 2, request: request{method: "DELETE", path: maps + "/SIDE-yaml", typ: typeJSON, body: `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`}},
		{name: "delete missing", events: 2, request: request{method: "DELETE", path: maps + "/missing"}},
		{name: "secret", events: 2, request: request{method: "GET", path: secrets + "/SIDE"}},
		{name: "delete secret", events: 2, request: request{method: "DELETE", path: secrets + "/SIDE"}},
		{name: "forbidden", events: 2, token: alice, request: request{path: secrets + "/SIDE"}},
		{name: "forbidden delete", events: 2, token: alice, request: request{method: "DELETE", path: secrets + "/SIDE"}},
		{name: "forbidden watch", events: 3, token: alice, request: request{path: secrets + "?watch=true&resourceVersion=0"}},
		{name: "unauthenticated", events: 1, token: func() string { return "nobody's" }, request: request{path: maps}},
		{name: "impersonation", events: 2, header: map[string]string{"Impersonate-User": "root", "Impersonate-Group": "system:masters"}, request: request{path: maps + "/SIDE?resourceVersion=0"}},
		{name: "impersonated delete", events: 2, header: map[string]string{"Impersonate-User": "root", "Impersonate-Group": "system:masters"}, request: request{method: "DELETE", path: maps + "/missing"}},
		{name: "forbidden impersonation", events: 2, token: alice, header: map[string]string{"Impersonate-User": "root"}, request: request{path: maps + "/SIDE"}},
		{name: "exec without a pod", events: 3, request: request{method: "POST", path: "/api/v1/namespaces/" + auditedNamespace + "/pods/p/exec?command=id"}},
		{name: "log without a pod", events: 3, request: request{path: "/api/v1/namespaces/" + auditedNamespace + "/pods/p/log"}},
	}
}

// TestAuditLikeKubeAPIServer compares the events of a gateway with those of kube-apiserver, for the same
// policy and requests.
func TestAuditLikeKubeAPIServer(t *testing.T) {
	ctx := deadline(t, 5*time.Minute)
	createNamespaces(ctx, t, auditedNamespace)
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	must(t, os.WriteFile(policy, []byte(auditPolicy), 0o600))
	g := startGateway(t, "--audit-policy-file", policy, "--audit-log-path", log, "--audit-log-mode", "blocking")
	for _, side := range []string{"direct", "gateway"} {
		for _, r := range auditedRequests() {
			who := identity{token: kube.AdminToken()}
			if r.token != nil {
				who.token = r.token()
			}
			c := direct(t, who)
			if side == "gateway" {
				c = through(t, g, who)
			}
			c = c.with("Audit-Id", side+"-"+r.name)
			for key, value := range r.header {
				c = c.with(key, value)
			}
			req := r.request
			req.path, req.body = strings.ReplaceAll(req.path, "SIDE", side), strings.ReplaceAll(req.body, "SIDE", side)
			_, err := c.send(ctx, req)
			must(t, err)
		}
	}
	want, got := recorded(t, kube.AuditLog(), "direct"), recorded(t, log, "gateway")
	for _, r := range auditedRequests() {
		eventually(ctx, t, waitTimeout, func() error {
			if len(want[r.name]) != r.events {
				want = recorded(t, kube.AuditLog(), "direct")
			}
			if len(got[r.name]) != r.events {
				got = recorded(t, log, "gateway")
			}
			if len(got[r.name]) != r.events || len(want[r.name]) != r.events {
				return fmt.Errorf("%s: %d events of kube-apiserver and %d of the gateway, want %d", r.name, len(want[r.name]), len(got[r.name]), r.events)
			}
			return nil
		})
		if diff := cmp.Diff(want[r.name], got[r.name]); diff != "" {
			t.Errorf("%s (-kube-apiserver +gateway):\n%s", r.name, diff)
		}
	}
}

// recorded returns the events of the requests of one side, by name, without what differs.
func recorded(t *testing.T, log, side string) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	all := make(map[string][]string)
	for line := range bytes.Lines(content) {
		var e map[string]any
		if json.Unmarshal(line, &e) != nil {
			continue // not written completely
		}
		id, _ := e["auditID"].(string)
		name, ours := strings.CutPrefix(id, side+"-")
		if !ours {
			continue
		}
		annotations, _ := e["annotations"].(map[string]any)
		maps.DeleteFunc(annotations, func(key string, _ any) bool {
			// For a forwarded request these are in the cluster's log only.
			return strings.HasPrefix(key, "kubeweir/") || strings.HasPrefix(key, "apiserver.latency.k8s.io/") || strings.HasPrefix(key, "authorization.k8s.io/")
		})
		if len(annotations) == 0 {
			delete(e, "annotations")
		}
		text, err := json.MarshalIndent(withoutTimes("", e), "", " ")
		must(t, err)
		// kube-apiserver shows its own version of DeleteOptions, the gateway the client's.
		same := strings.ReplaceAll(string(text), "meta.k8s.io/__internal", "v1")
		all[name] = append(all[name], strings.ReplaceAll(same, side, "SIDE"))
	}
	return all
}

// withoutTimes replaces values that differ between any two requests.
func withoutTimes(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = withoutTimes(name, v[name])
		}
	case []any:
		for i := range v {
			v[i] = withoutTimes(key, v[i])
		}
	case string:
		switch key {
		case "uid", "resourceVersion", "creationTimestamp", "requestReceivedTimestamp", "stageTimestamp":
			return "<" + key + ">"
		}
	}
	return v
}
