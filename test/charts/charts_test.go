// Package charts extends the API of a standalone kubeweir and of a real kube-apiserver and compares
// them: objects that Helm charts install (resource definitions and custom resources), an operator
// with webhooks, external API servers, and the schemas that describe all this. The charts are
// written for these tests, in the style of widely used ones.
package charts

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

const waitTimeout = 3 * time.Minute // bounds the test of one chart

// Set by TestMain and never changed.
var (
	kube   *realkube.Cluster
	origin *realkube.Standalone
)

func TestMain(m *testing.M) {
	testbed.Run(m, testbed.Options{Standalone: true, Prepare: func(_ context.Context, b *testbed.Testbed) error {
		kube, origin = b.Kube, b.Origin
		return nil
	}})
}

// The servers, in the order of every pair below.
const servers = 2

var serverNames = [servers]string{"kube-apiserver", "kubeweir"}

// A kubectl runs the same command lines against both servers.
type kubectl struct {
	path    string
	configs [servers]string
}

func newKubectl(ctx context.Context, t *testing.T) *kubectl {
	t.Helper()
	paths, err := realkube.Binaries(ctx)
	must(t, err)
	dir := t.TempDir()
	k := &kubectl{path: paths.Kubectl, configs: [servers]string{filepath.Join(dir, "kube"), filepath.Join(dir, "origin")}}
	must(t, kube.WriteKubeconfig(k.configs[0], kube.URL(), kube.ServingCAFile(), kube.AdminToken()))
	must(t, kube.WriteKubeconfig(k.configs[1], origin.URL(), kube.ServingCAFile(), kube.AdminToken()))
	return k
}

func (k *kubectl) run(ctx context.Context, config, line string) string {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, k.path, append([]string{"--kubeconfig", config}, strings.Fields(line)...)...)
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+config+"-cache")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	end := ""
	if err := cmd.Run(); err != nil {
		end = "\n--- " + err.Error()
	}
	return stdout.String() + "\n---\n" + stderr.String() + end
}

// mask matches what differs between any two servers: times, ages with the spaces after them (9s is
// shorter than 10s), versions, addresses, names of temporary files.
var mask = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:]+Z|(resourceVersion|uid): \S+|(UID|Resource Version): +\S+|127\.0\.0\.1:\d+|` +
	`/tmp/\S+|diff -u\S* .*|(---|\+\+\+) /\S+.*|\b(\d+m)?\d+s\b *|\bAGE +`)

// sorted sorts what the libraries produce in map order: the reasons for a rejection, and the custom
// resources of a group.
func sorted(out string) string {
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, `{"kind":"APIResourceList"`) {
			lines[i] = sortedResources(line)
			continue
		}
		if before, reasons, ok := strings.Cut(line, " is invalid: ["); ok {
			parts := strings.Split(strings.TrimSuffix(reasons, "]"), ", ")
			slices.Sort(parts)
			lines[i] = before + " is invalid: [" + strings.Join(parts, ", ") + "]"
		}
	}
	if strings.Contains(out, "errors:\n  .") {
		slices.Sort(lines)
	}
	return strings.Join(lines, "\n")
}

// sortedResources sorts the resources of a discovery document and leaves every other byte
// unchanged.
func sortedResources(document string) string {
	var list struct {
		Resources json.RawMessage `json:"resources"`
	}
	var resources []json.RawMessage
	if json.Unmarshal([]byte(document), &list) != nil || json.Unmarshal(list.Resources, &resources) != nil {
		return document
	}
	sorted := make([]string, 0, len(resources))
	for _, r := range resources {
		sorted = append(sorted, string(r))
	}
	slices.Sort(sorted)
	return strings.Replace(document, string(list.Resources), "["+strings.Join(sorted, ",")+"]", 1)
}

// same runs a command line at both servers and compares the output. It returns kube-apiserver's
// output.
func (k *kubectl) same(ctx context.Context, t *testing.T, line string) string {
	t.Helper()
	var out [servers]string
	var running sync.WaitGroup
	for i := range out {
		running.Go(func() { out[i] = k.run(ctx, k.configs[i], line) })
	}
	running.Wait()
	for i := range out {
		out[i] = sorted(mask.ReplaceAllString(out[i], "MASKED"))
	}
	if out[0] != out[1] {
		t.Errorf("kubectl %s\n(-%s +%s):\n%s", line, serverNames[0], serverNames[1], cmp.Diff(strings.Split(out[0], "\n"), strings.Split(out[1], "\n")))
	}
	return out[0]
}

// A chart is a folder of testdata.
type chart struct {
	name string
	// namespace is the namespace that it creates.
	namespace string
	// group is the API group of its definitions.
	group string
	// more is a list of command lines to run after the installation.
	more string
	// originOnly is a command line for which only kubeweir prints the group.
	originOnly string
}

// install is the list of command lines for every chart. $C is the folder with its files, $NS its
// namespace, $G its group.
const install = `
apply -f $C/crds.yaml
wait --for=condition=Established -f $C/crds.yaml --timeout=10s
apply -f $C/templates.yaml
apply -f $C/crds.yaml
apply -f $C/templates.yaml
diff -f $C/templates.yaml
diff -f $C/changed.yaml
apply -f $C/changed.yaml --dry-run=server
apply -f $C/changed.yaml
apply -f $C/refused.yaml
apply -f $C/crds.yaml --server-side
apply -f $C/templates.yaml --server-side
apply -f $C/changed.yaml --server-side --field-manager=other
apply -f $C/changed.yaml --server-side --field-manager=other --force-conflicts
apply -f $C/templates.yaml --server-side
apply -f $C/templates.yaml --server-side --force-conflicts
apply -f $C/templates.yaml --server-side
diff -f $C/changed.yaml --server-side
apply -f $C/refused.yaml --server-side --force-conflicts
api-resources --api-group=$G -o wide
get -f $C/templates.yaml
get -f $C/templates.yaml -o wide
describe -f $C/crds.yaml
get --raw /apis/$G
get --raw /apis/$G/v1
get --raw /openapi/v3/apis/$G/v1
`

const remove = `
delete -f $C/templates.yaml --wait=false
delete -f $C/crds.yaml --timeout=60s
get -f $C/crds.yaml
api-resources --api-group=$G
get --raw /apis/$G
`

func TestCharts(t *testing.T) {
	for _, c := range []chart{
		{"certificates", "charts-certificates", "pki.charts.example.com", `
get pki -n charts-certificates
get cts -n charts-certificates --field-selector spec.issuerRef.name=staging
get cts -n charts-certificates --field-selector spec.nonsense=1
get certificates -n charts-certificates -o jsonpath={.items[*].spec.dnsNames}
patch certificate web -n charts-certificates --subresource=status --type=merge -p {"status":{"conditions":[{"type":"Ready","status":"True"}],"revision":2}}
patch certificate web -n charts-certificates --subresource=status --type=merge -p {"status":{"conditions":[{"type":"Ready","status":"Perhaps"}]}}
get cts -n charts-certificates -o wide
wait --for=condition=Ready certificate/web -n charts-certificates --timeout=5s
describe certificate web -n charts-certificates
explain certificates.spec.privateKey
explain certificates --recursive
auth can-i list certificates.pki.charts.example.com --as=system:serviceaccount:charts-certificates:certs -n default
label certificates --all -n charts-certificates reviewed=yes
delete certificates -n charts-certificates -l reviewed=yes`,
			`get clusterrole view -o jsonpath={.rules[?(@.apiGroups[0]=="pki.charts.example.com")].apiGroups}`},
		{"monitoring", "charts-monitoring", "monitoring.charts.example.com", `
get monitoring -n charts-monitoring
get collectors.v1alpha1.monitoring.charts.example.com -n charts-monitoring
scale collector main -n charts-monitoring --replicas=4
get collector main -n charts-monitoring --subresource=scale
patch collector main -n charts-monitoring --type=json -p [{"op":"replace","path":"/spec/port","value":1.5}]
patch collector main -n charts-monitoring -p {"spec":{"paused":true}}
patch collector main -n charts-monitoring --type=merge -p {"spec":{"paused":true}}
get hpa -n charts-monitoring
explain collectors.spec.remoteWrite
explain collector --api-version=monitoring.charts.example.com/v1alpha1
rollout history statefulset/collector -n charts-monitoring
create -f testdata/monitoring/refused.yaml --validate=strict
replace -f testdata/monitoring/templates.yaml`, ""},
		{"routing", "charts-routing", "routing.charts.example.com", `
get routing -n charts-routing
get gateways.v1beta1.routing.charts.example.com -n charts-routing
get gateway edge -n charts-routing -o jsonpath={.status}
explain routes.spec.rules.matches
annotate crd routes.routing.charts.example.com routing.charts.example.com/bundle=v1.0.0
patch route shop -n charts-routing --type=merge -p {"spec":{"owner":null}}
patch route shop -n charts-routing --type=merge -p {"spec":{"owner":"team-c"}}
get resourcequota routes -n charts-routing -o jsonpath={.spec}
delete route everything -n charts-routing --cascade=foreground --wait=false
get routes -n charts-routing -o jsonpath={.items[*].metadata.finalizers}
patch route everything -n charts-routing --type=json -p [{"op":"remove","path":"/metadata/finalizers"}]
get routes -n charts-routing -o name`, ""},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t) })
	}
}

func (c chart) test(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	k := newKubectl(ctx, t)
	fill := strings.NewReplacer("$C", filepath.Join("testdata", c.name), "$NS", c.namespace, "$G", c.group)
	lines := func(list string) {
		for line := range strings.Lines(strings.TrimSpace(list)) {
			k.same(ctx, t, fill.Replace(strings.TrimSpace(line)))
		}
	}
	lines(install)
	c.compareObjects(ctx, t)
	lines(c.more)
	c.compareObjects(ctx, t)
	if c.originOnly != "" {
		// For kube-apiserver a controller would do this, which does not run here.
		if out := k.run(ctx, k.configs[1], c.originOnly); !strings.Contains(out, c.group) {
			t.Errorf("kubectl %s:\n%s", c.originOnly, out)
		}
	}
	lines(remove)
}

// compareObjects compares the definitions and everything in the namespace, including managedFields.
func (c chart) compareObjects(ctx context.Context, t *testing.T) {
	t.Helper()
	originConfig, err := origin.AdminConfig()
	must(t, err)
	var found [servers]map[string]any
	for i, config := range []*dynamic.DynamicClient{dynamic.NewForConfigOrDie(kube.AdminConfig()), dynamic.NewForConfigOrDie(originConfig)} {
		found[i] = c.objects(ctx, t, config)
	}
	for name := range found[0] {
		if diff := cmp.Diff(found[0][name], found[1][name]); diff != "" {
			t.Errorf("%s (-%s +%s):\n%s", name, serverNames[0], serverNames[1], diff)
		}
		delete(found[1], name)
	}
	for name := range found[1] {
		t.Errorf("%s exists only at %s", name, serverNames[1])
	}
}

func (c chart) objects(ctx context.Context, t *testing.T, client dynamic.Interface) map[string]any {
	t.Helper()
	found := map[string]any{}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	list, err := definitions.List(ctx, metav1.ListOptions{})
	must(t, err)
	for _, crd := range list.Items {
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		if group != c.group {
			continue
		}
		found[crd.GetName()] = comparable(t, &crd)
		plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
		c.list(ctx, t, client, schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}, found)
	}
	if len(found) < 4 {
		t.Errorf("there are only %d definitions and objects", len(found))
	}
	for _, resource := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "services"}, {Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"},
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "statefulsets"},
		{Group: "apps", Version: "v1", Resource: "daemonsets"}, {Group: "batch", Version: "v1", Resource: "cronjobs"},
		{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, {Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	} {
		c.list(ctx, t, client, resource, found)
	}
	return found
}

func (c chart) list(ctx context.Context, t *testing.T, client dynamic.Interface, resource schema.GroupVersionResource, found map[string]any) {
	t.Helper()
	list, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
	must(t, err)
	for _, object := range list.Items {
		if object.GetNamespace() == "" || object.GetNamespace() == c.namespace {
			found[resource.Resource+"/"+object.GetName()] = comparable(t, &object)
		}
	}
}

// comparable returns an object without the fields that differ between any two servers, its managers
// sorted by name.
func comparable(t *testing.T, object *unstructured.Unstructured) any {
	t.Helper()
	unstructured.RemoveNestedField(object.Object, "metadata", "uid")
	unstructured.RemoveNestedField(object.Object, "metadata", "resourceVersion")
	managers := object.GetManagedFields()
	for i := range managers {
		managers[i].Time = nil
	}
	slices.SortStableFunc(managers, func(a, b metav1.ManagedFieldsEntry) int {
		return strings.Compare(a.Manager+string(a.Operation)+a.Subresource, b.Manager+string(b.Operation)+b.Subresource)
	})
	object.SetManagedFields(managers)
	text, err := json.Marshal(object.Object)
	must(t, err)
	var masked any
	must(t, json.Unmarshal(mask.ReplaceAll(text, []byte("MASKED")), &masked))
	return masked
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
