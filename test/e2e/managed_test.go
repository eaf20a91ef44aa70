package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deployment returns a Deployment as a user would apply it.
func deployment(replicas int) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"app":"web"}},"spec":{"replicas":%d,"selector":{"matchLabels":{"app":"web"}},`+
		`"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"example.com/web:1"}]}}}}`, replicas)
}

// TestDropManagedFields checks that a gateway that drops the managedFields of a resource serves
// none of them, in any representation. The managedFields in the cluster stay intact whatever is
// written through the gateway, including objects that it served.
func TestDropManagedFields(t *testing.T) {
	t.Parallel()
	dropManagedFields(t, "managed", false, "--drop-managed-fields=deployments.apps")
}

// TestDropRule is TestDropManagedFields for clients that match a rule. Their most-recent gets have
// no managedFields either.
func TestDropRule(t *testing.T) {
	t.Parallel()
	dropManagedFields(t, "dropped", true, "--config="+writeFile(t, "gateway.yaml", `rules:
- userAgents: ["e2e*", "kubectl*"]
  drop: [metadata.managedFields]
`))
}

func dropManagedFields(t *testing.T, namespace string, gets bool, flags ...string) {
	ctx := deadline(t, 5*time.Minute)
	createNamespaces(ctx, t, namespace)
	all := "/apis/apps/v1/namespaces/" + namespace + "/deployments"
	web := all + "/web"
	admin := identity{token: kube.AdminToken()}
	up := direct(t, admin)
	write := func(c *client, method, path, typ, body string, status int) response {
		t.Helper()
		a, err := c.send(ctx, request{method: method, path: path, accept: typeJSON, typ: typ, body: body})
		must(t, err)
		if a.status != status {
			t.Fatalf("%s %s: %s", method, path, a)
		}
		return a
	}
	const apply, merge = "application/apply-patch+yaml", "application/merge-patch+json"
	write(up, "PATCH", web+"?fieldManager=kubectl", apply, deployment(1), http.StatusCreated)
	write(up, "PATCH", web+"?fieldManager=autoscaler", merge, `{"metadata":{"annotations":{"load":"7"}}}`, http.StatusOK)
	write(up, "PATCH", web+"/status?fieldManager=controller", merge, `{"status":{"observedGeneration":1,"replicas":1}}`, http.StatusOK)

	// managers returns the size of the fields of each manager of the cluster's object, by manager,
	// operation and subresource.
	managers := func() map[string]int {
		t.Helper()
		var object metav1.PartialObjectMetadata
		must(t, json.Unmarshal([]byte(up.get(ctx, t, web, typeJSON).body), &object))
		out := map[string]int{}
		for _, m := range object.ManagedFields {
			out[fmt.Sprintf("%s %s %s", m.Manager, m.Operation, m.Subresource)] = len(m.FieldsV1.GetRawString())
		}
		return out
	}
	before := managers()
	if len(before) != 3 {
		t.Fatalf("managers %v", before)
	}

	g := startGateway(t, flags...)
	gw := through(t, g, admin)
	const field = "f:metadata" // it occurs in managedFields in every encoding
	const typeCBOR, typeYAML = "application/cbor", "application/yaml"
	reads := 0
	for _, r := range []struct {
		path    string
		accepts []string
	}{
		{web + "?resourceVersion=0", []string{typeJSON, typeProto, typeTable, typeMeta, typeMetaPB, typeCBOR, typeYAML}},
		{all + "?resourceVersion=0", []string{typeJSON, typeProto, typeTable, typeMetaList, typeCBOR, typeYAML}},
		{all + "?watch=1&resourceVersion=0&timeoutSeconds=1", []string{typeJSON, typeProto, typeTable, typeCBOR}},
	} {
		for _, accept := range r.accepts {
			path := r.path
			if accept == typeTable {
				path += "&includeObject=Object"
			}
			reads++
			a := gw.get(ctx, t, path, accept)
			if a.status != http.StatusOK || !strings.Contains(a.body, "web") || strings.Contains(a.body, field) || strings.Contains(a.body, "managedFields") {
				t.Errorf("%s as %s: %s", path, accept, a)
			}
			if accept == typeCBOR || strings.Contains(path, "watch") {
				continue // not supported by kube-apiserver, or already compared
			}
			if a := up.get(ctx, t, path, accept); a.status != http.StatusOK || !strings.Contains(a.body, field) {
				t.Errorf("kube-apiserver, %s as %s: %s", path, accept, a)
			}
		}
	}
	eventually(ctx, t, waitTimeout, func() error { // a request is counted after its client has received the response
		m, err := g.Metrics(ctx)
		if n := m.Sum("kubeweir_requests_total", map[string]string{"source": "cached"}); err == nil && int(n) != reads {
			err = fmt.Errorf("%v of %d reads were served from the cache", n, reads)
		}
		return err
	})
	if a := gw.get(ctx, t, all, typeJSON); !strings.Contains(a.body, `"web"`) || strings.Contains(a.body, field) {
		t.Errorf("most-recent list: %s", a)
	}
	if a := gw.get(ctx, t, web, typeJSON); strings.Contains(a.body, field) == gets {
		t.Errorf("most-recent get: %s", a)
	}

	// Write back an object that the gateway served without managedFields.
	given := gw.get(ctx, t, web+"?resourceVersion=0", typeJSON).body
	write(gw, "PUT", web+"?fieldManager=editor", typeJSON, strings.Replace(given, `"load":"7"`, `"load":"8"`, 1), http.StatusOK)
	write(gw, "PATCH", web+"?fieldManager=labeler", merge, `{"metadata":{"labels":{"tier":"front"}}}`, http.StatusOK)
	after := managers()
	want := []string{"autoscaler Update ", "controller Update status", "editor Update ", "kubectl Apply ", "labeler Update "}
	if got := slices.Sorted(maps.Keys(after)); !slices.Equal(got, want) {
		t.Errorf("managers %v, want %v", got, want)
	}
	for _, m := range []string{"kubectl Apply ", "controller Update status"} {
		if after[m] != before[m] {
			t.Errorf("manager %s has %d bytes of fields, want %d", m, after[m], before[m])
		}
	}

	// Server-side apply knows the owners of fields.
	write(gw, "PATCH", web+"?fieldManager=kubectl", apply, deployment(2), http.StatusOK)
	if a := write(gw, "PATCH", web+"?fieldManager=other", apply, deployment(3), http.StatusConflict); !strings.Contains(a.body, `conflict with \"kubectl\": .spec.replicas`) {
		t.Errorf("applying with a conflict: %s", a)
	}
	file := filepath.Join(t.TempDir(), "web.json")
	must(t, os.WriteFile(file, []byte(deployment(4)), 0o600))
	k := newKubectl(ctx, t, g)
	for _, args := range []string{"apply --server-side -f", "apply -f", "diff -f"} {
		out, err := k.command(ctx, k.configs[1], append(strings.Fields(args), file, "-n", namespace)...).CombinedOutput()
		if err != nil || strings.Contains(strings.ToLower(string(out)), "conflict") {
			t.Errorf("kubectl %s: %v\n%s", args, err, out)
		}
	}
	if a := up.get(ctx, t, web, typeJSON); !strings.Contains(a.body, `"replicas":4,"selector"`) {
		t.Errorf("after kubectl apply: %s", a)
	}
}
