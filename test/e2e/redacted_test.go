package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

const (
	redactedNamespace = "redacted"
	// seed is the value of everything that must be redacted.
	seed = "s3cr3t-S33D-0f-test"
)

// showsSeed reports whether a text contains the seed, plain or in base64 at any offset.
func showsSeed(text string) bool {
	for skip := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", skip) + seed))
		if strings.Contains(text, encoded[4:len(encoded)-4]) {
			return true
		}
	}
	return strings.Contains(text, seed)
}

// vaultDefinition is a custom resource that contains a pod template and a Secret, and has a printer
// column with the value of an environment variable.
const vaultDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"vaults.redacted.example.com"},"spec":{
"group":"redacted.example.com","scope":"Namespaced","names":{"plural":"vaults","kind":"Vault"},"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
"selectableFields":[{"jsonPath":".spec.env.PASSWORD"}],
"additionalPrinterColumns":[{"name":"Variable","type":"string","jsonPath":".spec.template.spec.containers[0].env[0].value"},{"name":"Image","type":"string","jsonPath":".spec.template.spec.containers[0].image"}],
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"env":{"type":"object","properties":{"PASSWORD":{"type":"string"}}}}}}}}}]}}`

// sown returns objects with the seed, by resource: Secrets, and all resources with pod templates.
func sown() map[schema.GroupVersionResource]string {
	template := `{"metadata":{"labels":{"app":"a"},"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"SEED","kept":"yes"}},"spec":{"restartPolicy":"RESTART",
"containers":[{"name":"c","image":"kept","env":[{"name":"PASSWORD","value":"SEED"},{"name":"FROM","valueFrom":{"secretKeyRef":{"name":"a","key":"password"}}}]}],
"initContainers":[{"name":"i","image":"kept","env":[{"name":"PASSWORD","value":"SEED"}]}]}}`
	always, once := strings.ReplaceAll(template, "RESTART", "Always"), strings.ReplaceAll(template, "RESTART", "Never")
	const selector = `"selector":{"matchLabels":{"app":"a"}}`
	group := func(group, version, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	spec := strings.TrimPrefix(template[strings.Index(template, `"spec":`):], `"spec":`)
	return map[schema.GroupVersionResource]string{
		group("", "v1", "secrets"):                    `{"kind":"Secret","stringData":{"password":"SEED","other":"xSEED","third":"xxSEED"}}`,
		group("", "v1", "pods"):                       `{"kind":"Pod","spec":` + strings.ReplaceAll(spec[:len(spec)-1], "RESTART", "Always") + `}`,
		group("", "v1", "podtemplates"):               `{"kind":"PodTemplate","template":` + always + `}`,
		group("", "v1", "replicationcontrollers"):     `{"kind":"ReplicationController","spec":{"replicas":0,"selector":{"app":"a"},"template":` + always + `}}`,
		group("apps", "v1", "deployments"):            `{"kind":"Deployment","spec":{` + selector + `,"template":` + always + `}}`,
		group("apps", "v1", "replicasets"):            `{"kind":"ReplicaSet","spec":{` + selector + `,"template":` + always + `}}`,
		group("apps", "v1", "statefulsets"):           `{"kind":"StatefulSet","spec":{"serviceName":"a",` + selector + `,"template":` + always + `}}`,
		group("apps", "v1", "daemonsets"):             `{"kind":"DaemonSet","spec":{` + selector + `,"template":` + always + `}}`,
		group("apps", "v1", "controllerrevisions"):    `{"kind":"ControllerRevision","revision":1,"data":{"spec":{"template":` + always + `}}}`,
		group("batch", "v1", "jobs"):                  `{"kind":"Job","spec":{"template":` + once + `}}`,
		group("batch", "v1", "cronjobs"):              `{"kind":"CronJob","spec":{"schedule":"0 0 1 1 *","jobTemplate":{"spec":{"template":` + once + `}}}}`,
		group("redacted.example.com", "v1", "vaults"): `{"kind":"Vault","spec":{"template":` + always + `,"env":{"PASSWORD":"SEED"},"manifests":[{"data":{"a":"SEED"},"kind":"Secret"}]}}`,
	}
}

// sow creates the objects.
func sow(ctx context.Context, t *testing.T) {
	t.Helper()
	cfg := rest.CopyConfig(kube.AdminConfig())
	cfg.QPS = -1
	client, err := dynamic.NewForConfig(cfg)
	must(t, err)
	parse := func(text string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		must(t, u.UnmarshalJSON([]byte(text)))
		return u
	}
	if _, err := client.Resource(definitions).Create(ctx, parse(vaultDefinition), metav1.CreateOptions{}); err != nil && !errors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Resource(definitions).Delete(context.Background(), "vaults.redacted.example.com", metav1.DeleteOptions{})
	})
	for gvr, text := range sown() {
		u := parse(strings.ReplaceAll(`{"apiVersion":"`+gvr.GroupVersion().String()+`","metadata":{"name":"a","labels":{"app":"a"},"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"SEED"}},`+text[1:], "SEED", seed))
		objects := client.Resource(gvr).Namespace(redactedNamespace)
		must(t, testbed.Poll(ctx, waitTimeout, func() error { // until the definition is served
			_, err := objects.Create(ctx, u, metav1.CreateOptions{})
			return err
		}))
		t.Cleanup(func() {
			_ = objects.Delete(context.Background(), "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		})
	}
}

// TestRedacted checks that users with a redacted view see no secret of a real cluster, whatever the
// request, the representation and the resource.
func TestRedacted(t *testing.T) {
	ctx := deadline(t, 3*time.Minute+time.Duration(redactedCases())*20*time.Millisecond)
	createNamespaces(ctx, t, redactedNamespace)
	sow(ctx, t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(file, []byte("rules:\n- users: ["+realkube.Alice+"]\n  view: redacted\n"), 0o600))
	r := newRights(t)
	r.everywhere(ctx, "e2e-redacted", realkube.Alice, rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
	awaitStatus(ctx, t, direct(t, as(realkube.Alice)), configMapsIn(redactedNamespace), http.StatusOK)
	for _, consistency := range []string{"strict", "session"} {
		g := startGateway(t, "--config="+file, "--consistency="+consistency)
		t.Run(consistency, func(t *testing.T) {
			v := &viewers{redacted: through(t, g, as(realkube.Alice)), whole: through(t, g, as(realkube.Admin))}
			awaitStatus(ctx, t, v.redacted, configMapsIn(redactedNamespace)+"?resourceVersion=0", http.StatusOK)
			for gvr := range sown() {
				v.read(ctx, t, gvr)
			}
			v.watches.Wait()
			if consistency == "strict" {
				t.Run("random", func(t *testing.T) { v.testRandom(ctx, t) })
			}
		})
		if consistency == "session" {
			t.Run("kubectl", func(t *testing.T) { testRedactedKubectl(ctx, t, g) })
		}
	}
}

// viewers are a client with a redacted view and one with a full view.
type viewers struct {
	redacted, whole *client
	watches         sync.WaitGroup // each takes a second
}

// read reads a resource in all ways and representations. It does not wait for watches.
func (v *viewers) read(ctx context.Context, t *testing.T, gvr schema.GroupVersionResource) {
	path := "/apis/" + gvr.Group + "/" + gvr.Version
	if gvr.Group == "" {
		path = "/api/" + gvr.Version
	}
	list := path + "/namespaces/" + redactedNamespace + "/" + gvr.Resource
	watch := list + "?watch=1&timeoutSeconds=1"
	responded := 0
	for _, accept := range []string{
		typeJSON, "application/yaml", "application/cbor", typeProto + "," + typeJSON, typeTable, typeMeta, typeMetaList, typeMetaPB, typeProto,
		"application/cbor;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json", "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
	} {
		check := func(p string) (status int) {
			a, err := v.redacted.send(ctx, request{path: p, accept: accept})
			switch {
			case err != nil:
				t.Error(err)
			case showsSeed(a.body):
				t.Errorf("%s as %s: %v", p, accept, a.body)
			case a.status != http.StatusOK && accept == typeJSON && a.status != http.StatusNotFound:
				t.Errorf("%s as %s: %v", p, accept, a)
			}
			return a.status
		}
		for _, p := range []string{
			list, path + "/" + gvr.Resource, list + "?resourceVersion=0&includeObject=Object", list + "?includeObject=Object&limit=1", list + "/a", list + "/a?includeObject=Object",
			list + "/a/status", list + "?pretty=1", list + "?sortBy=.metadata.name&countBy=.spec,.data",
		} {
			if check(p) == http.StatusOK {
				responded++
			}
		}
		for _, p := range []string{watch + "&resourceVersion=0&includeObject=Object", watch + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"} {
			v.watches.Go(func() { check(p) })
		}
	}
	if responded < 50 {
		t.Errorf("%s: only %d reads succeeded", gvr.Resource, responded)
	}
	if a, err := v.whole.send(ctx, request{path: list}); err != nil || !showsSeed(a.body) {
		t.Errorf("%s with the full view: %v %v", gvr.Resource, a, err)
	}
}

// testRedactedKubectl runs kubectl as a user with a redacted view.
func testRedactedKubectl(ctx context.Context, t *testing.T, g *realkube.Gateway) {
	k := newKubectl(ctx, t, g)
	must(t, g.WriteKubeconfig(k.configs[1], kube.Token(realkube.Alice)))
	for _, c := range []struct{ line, want string }{
		{"get secrets -n $NS", "Opaque   3"},
		{"get secret a -n $NS -o yaml", "password: MTkgYnl0ZXM="},
		{"get secret a -n $NS -o jsonpath={.data.password}", base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%d bytes", len(seed)))},
		{"describe secret a -n $NS", "password:"},
		{"describe deployment a -n $NS", "PASSWORD"},
		{"describe pod a -n $NS", "PASSWORD"},
		{"get pods,deploy,sts,ds,rs,rc,jobs,cronjobs,controllerrevisions -n $NS -o yaml --show-managed-fields", "name: PASSWORD"},
		{"get all -n $NS -o wide", "deployment.apps/a"},
		{"get vaults -n $NS", "kept"},
		{"get vaults -n $NS -o json", `"name": "PASSWORD"`},
		{"get crd vaults.redacted.example.com -o yaml", "additionalPrinterColumns"},
		{"explain vaults.spec", "KIND:"},
		{"auth can-i delete secrets -n $NS", "yes"},
		{"auth whoami", realkube.Alice},
		{"api-resources", "vaults"},
		{"set env deployment/a -n $NS --list", "PASSWORD="},
		{"rollout history sts/a -n $NS", "statefulset.apps/a"},
		{"apply view-last-applied deployment/a -n $NS", ""},
		{"logs a -n $NS", "redacted view"},
		{"exec a -n $NS -- env", "redacted view"},
		{"annotate pod a -n $NS x=y", "redacted view"},
		{"create token default -n $NS", "redacted view"},
		{"get --raw /metrics", "redacted view"},
		{"get --raw /readyz", "ok"},
		{"get vaults -n $NS --field-selector spec.env.PASSWORD=x", "redacted view"},
	} {
		out := k.run(ctx, k.configs[1], strings.Fields(c.line), redactedNamespace)
		if showsSeed(out) || !strings.Contains(out, c.want) {
			t.Errorf("kubectl %s: %s", c.line, out)
		}
	}
}
