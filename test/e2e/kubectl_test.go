package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/steady"
)

const readNamespace = "kubectl-read"

// readCommands only read; "$NS" is the namespace of the objects. Their output must be the same byte
// for byte.
const readCommands = `
get pods -n $NS
get pods -A
get pods -n $NS -o wide
get pods -n $NS -o yaml
get pods -n $NS -o json
get pods -n $NS -o name
get pods -n $NS --show-labels
get pods -n $NS -l app=web
get pods -n $NS -l app in (web,job),tier!=back
get pods -n $NS --field-selector status.phase=Running
get pods -n $NS --field-selector spec.nodeName=node-k,status.phase!=Pending
get pods -n $NS --chunk-size=2
get pods -n $NS --chunk-size=1 -o name
get pods -n $NS --sort-by=.metadata.name -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image
get pods -n $NS -o jsonpath={.items[*].metadata.name}
get pod web-1 -n $NS
get pod web-1 job-1 -n $NS -o wide
get pod web-1 -n $NS -o yaml --show-managed-fields
get pod absent -n $NS
get nonsense -n $NS
get pods -n $NS --field-selector spec.nonsense=1
get all -n $NS
get cm,secrets,deploy,svc,cronjobs -n $NS -o wide
get widgets -n $NS
get wd -n $NS -o wide
get widget left -n $NS -o yaml
get widgets -n $NS --field-selector spec.color=red
get events -n $NS
get namespaces
get nodes -o wide
get crd widgets.example.com
get apiservices
get pods -n absent
get deploy web -n $NS --subresource=scale
get pod web-1 -n $NS --subresource=status
describe pod web-1 -n $NS
describe deployment web -n $NS
describe configmap settings -n $NS
describe widget left -n $NS
describe node node-k
describe ns $NS
describe pods -n $NS -l app=job
explain pods.spec.containers
explain widgets.spec
explain deployment --recursive
explain nonsense
api-resources
api-resources --verbs=list,watch --namespaced -o name
api-resources --api-group=example.com -o wide
api-versions
version
version -o json
auth can-i get pods -n $NS
auth can-i delete nodes --as=alice
auth can-i --list --as=alice -n $NS
auth whoami
auth whoami --as=alice --as-group=g1 -o yaml
get pods -n $NS --as=alice
get --raw /api/v1/namespaces/$NS/pods/web-1
get --raw /apis/example.com/v1
get --raw /openapi/v3
get --raw /version
get --raw /nonsense
rollout status deployment/web -n $NS --timeout=5s
rollout history deployment/web -n $NS
wait --for=condition=Available deployment/web -n $NS --timeout=5s
wait --for=jsonpath={.status.ready}=yes widget/left -n $NS --timeout=5s
wait --for=condition=Ready pod/web-2 -n $NS --timeout=1s
events -n $NS
top pods -n $NS
diff -n $NS -f testdata/kubectl-write.yaml
`

// writeCommands change a namespace step by step. They run in two namespaces, directly and through
// the gateway. Their output and the resulting objects must be the same except for names and times.
const writeCommands = `
apply -n $NS -f testdata/kubectl-write.yaml
apply -n $NS -f testdata/kubectl-write.yaml
apply -n $NS -f testdata/kubectl-write-changed.yaml
apply -n $NS -f testdata/kubectl-write.yaml --server-side
apply -n $NS -f testdata/kubectl-write.yaml --server-side --force-conflicts
apply -n $NS -f testdata/kubectl-write-changed.yaml --server-side --field-manager=other
apply -n $NS -f testdata/kubectl-write-changed.yaml --server-side --dry-run=server --force-conflicts -o yaml
edit configmap settings -n $NS
edit deployment web -n $NS
patch deployment web -n $NS -p {"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"A","value":"1"}]}]}}}}
patch configmap settings -n $NS --type=merge -p {"data":{"size":null,"patched":"yes"}}
patch widget left -n $NS --type=json -p [{"op":"replace","path":"/spec/size","value":7}]
patch widget left -n $NS --type=json -p [{"op":"test","path":"/spec/size","value":8}]
patch widget left -n $NS --subresource=status --type=merge -p {"status":{"ready":"yes"}}
label configmap settings -n $NS color=red
label configmap settings -n $NS color=blue
label configmap settings -n $NS color=blue --overwrite
label configmaps -n $NS --all every=one
annotate widget left -n $NS note=text
scale deployment web -n $NS --replicas=5
scale deployment web -n $NS --current-replicas=2 --replicas=3
scale widget left -n $NS --replicas=4
set image deployment/web main=example.com/web:3 -n $NS
set env deployment/web B=2 -n $NS
create configmap made --from-literal=a=b -n $NS
create configmap made --from-literal=a=b -n $NS
create secret generic made --from-literal=a=b -n $NS
create role reader --verb=get,list --resource=pods -n $NS
create rolebinding reader --role=reader --user=alice -n $NS
create -n $NS -f testdata/kubectl-write.yaml
replace -n $NS -f testdata/kubectl-write.yaml
replace -n $NS -f testdata/kubectl-write.yaml --force
run single --image=example.com/one -n $NS
expose deployment web --port=80 --cluster-ip=None -n $NS
autoscale deployment web --min=1 --max=3 --cpu=50% -n $NS
rollout pause deployment/web -n $NS
rollout resume deployment/web -n $NS
delete configmap made -n $NS
delete configmap made -n $NS
delete configmap made -n $NS --ignore-not-found
delete pod single -n $NS --now
delete widgets -n $NS -l app=web
delete configmaps -n $NS --all
wait --for=delete configmap/settings -n $NS --timeout=5s
get deployments,configmaps,secrets,widgets,roles,rolebindings,services,hpa -n $NS -o yaml --show-managed-fields
get deployments,configmaps,secrets,widgets,roles,rolebindings,services,hpa,pods -n $NS -o name
`

// A kubectl runs the same commands against two servers.
type kubectl struct {
	path    string
	configs [2]string // kubeconfigs of kube-apiserver and of the gateway
}

func newKubectl(ctx context.Context, t *testing.T, g *realkube.Gateway) *kubectl {
	t.Helper()
	paths, err := realkube.Binaries(ctx)
	must(t, err)
	dir := t.TempDir()
	k := &kubectl{path: paths.Kubectl, configs: [2]string{filepath.Join(dir, "direct"), filepath.Join(dir, "gateway")}}
	must(t, kube.WriteKubeconfig(k.configs[0], kube.URL(), kube.ServingCAFile(), kube.AdminToken()))
	must(t, g.WriteKubeconfig(k.configs[1], kube.AdminToken()))
	return k
}

// commands splits a list of commands. An argument may contain blanks inside brackets.
func commands(list string) [][]string {
	var out [][]string
	for line := range strings.Lines(strings.TrimSpace(list)) {
		var args []string
		depth := 0
		for _, word := range strings.Fields(line) {
			if depth > 0 {
				args[len(args)-1] += " " + word
			} else {
				args = append(args, word)
			}
			depth += strings.Count(word, "(") - strings.Count(word, ")")
		}
		// "app in (a,b)" is one argument.
		for i := 1; i+1 < len(args); i++ {
			if args[i] == "in" {
				args = append(append(args[:i-1:i-1], strings.Join(args[i-1:i+2], " ")), args[i+2:]...)
			}
		}
		out = append(out, args)
	}
	return out
}

// both runs a command against both servers concurrently, in the given namespaces. It returns
// standard output and, after a line, standard error.
func (k *kubectl) both(ctx context.Context, args []string, namespaces [2]string) (out [2]string) {
	var running sync.WaitGroup
	for i := range out {
		running.Go(func() { out[i] = k.run(ctx, k.configs[i], args, namespaces[i]) })
	}
	running.Wait()
	return out
}

func (k *kubectl) run(ctx context.Context, kubeconfig string, args []string, namespace string) string {
	line := make([]string, len(args))
	for i, a := range args {
		line[i] = strings.ReplaceAll(a, "$NS", namespace)
	}
	var stdout, stderr bytes.Buffer
	cmd := k.command(ctx, kubeconfig, line...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	text := ""
	if err := cmd.Run(); err != nil {
		text = "\n--- " + err.Error()
	}
	return stdout.String() + "\n---\n" + stderr.String() + text
}

func (k *kubectl) command(ctx context.Context, kubeconfig string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.path, append([]string{"--kubeconfig", kubeconfig}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+kubeconfig+"-cache", "KUBE_EDITOR=sed -i -e s,example.com/web:.,example.com/web:9, -e s,red,pink,")
	return cmd
}

// TestKubectl runs the same kubectl commands directly and through the gateway.
func TestKubectl(t *testing.T) {
	ctx := deadline(t, 5*time.Minute)
	createNamespaces(ctx, t, readNamespace, "kubectl-direct", "kubectl-through")
	g := startGateway(t)
	k := newKubectl(ctx, t, g)
	createDocuments(ctx, t, "testdata/kubectl-read.yaml", readNamespace)
	t.Run("read", func(t *testing.T) {
		for _, args := range commands(readCommands) {
			k.compareRead(ctx, t, args)
		}
	})
	t.Run("read from the cache", func(t *testing.T) {
		g := startGateway(t, "--consistency=session")
		k := newKubectl(ctx, t, g)
		for _, args := range commands(readCommands) {
			if args[0] == "get" {
				k.compareRead(ctx, t, args)
			}
		}
		if n := readsFrom(ctx, t, g, "cached"); n < 30 {
			t.Errorf("only %v reads were served from the cache", n)
		}
	})
	t.Run("read by the path of one of several clusters", func(t *testing.T) {
		g := startGateway(t, "--config", writeFile(t, "gateway.yaml", "clusters:\n- name: one\n"))
		k := newKubectl(ctx, t, g)
		must(t, kube.WriteKubeconfig(k.configs[1], g.URL()+"/clusters/one", kube.ServingCAFile(), kube.AdminToken()))
		for i, args := range commands(readCommands) {
			if i%4 == 0 { // the path is the same for all, so some suffice
				k.compareRead(ctx, t, args)
			}
		}
	})
	t.Run("write", func(t *testing.T) {
		for _, args := range commands(writeCommands) {
			k.compareWrite(ctx, t, args)
		}
	})
	t.Run("watch", func(t *testing.T) { k.compareWatches(ctx, t) })
}

func (k *kubectl) compareRead(ctx context.Context, t *testing.T, args []string) {
	t.Helper()
	read := func(server int) func() string {
		return func() string {
			return maskServer.ReplaceAllString(k.run(ctx, k.configs[server], args, readNamespace), "SERVER")
		}
	}
	equal := func(a, b string) bool { return a == b }
	if direct, gateway, same := steady.Compare(read(0), read(1), equal); !same {
		t.Errorf("kubectl %s:\n%s", strings.Join(args, " "), firstDifference(direct, gateway))
	}
}

var (
	// maskServer matches addresses, process IDs of plugins and names of temporary files.
	maskServer = regexp.MustCompile(`127\.0\.0\.1:\d+(/clusters/one)?|/tmp/\S+|diff -u\S* .*|(---|\+\+\+) /\S+.*`)
	// maskWrite matches values that differ between any two objects.
	maskWrite = regexp.MustCompile(`kubectl-(direct|through)|\d{4}-\d\d-\d\dT[0-9:]+Z|resourceVersion: "\d+"|uid: [0-9a-f-]{36}|UID: "?[0-9a-f-]{36}|` +
		`127\.0\.0\.1:\d+|/tmp/\S+`)
)

func (k *kubectl) compareWrite(ctx context.Context, t *testing.T, args []string) {
	t.Helper()
	out := k.both(ctx, args, [2]string{"kubectl-direct", "kubectl-through"})
	for i := range out {
		out[i] = maskWrite.ReplaceAllString(out[i], "MASKED")
	}
	if out[0] != out[1] {
		t.Errorf("kubectl %s:\n%s", strings.Join(args, " "), firstDifference(out[0], out[1]))
	}
}

// firstDifference returns the first line in which two outputs differ.
func firstDifference(direct, gateway string) string {
	a, b := strings.Split(direct, "\n"), strings.Split(gateway, "\n")
	for i := range max(len(a), len(b)) {
		x, y := "(end)", "(end)"
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return fmt.Sprintf(" line %d directly:    %.600s\n line %d by gateway: %.600s", i+1, x, i+1, y)
		}
	}
	return "no difference"
}

// createDocuments creates the objects of a YAML stream, with their status, at kube-apiserver
// itself.
func createDocuments(ctx context.Context, t *testing.T, file, namespace string) {
	t.Helper()
	_, generic := directClients(t)
	disco, err := discovery.NewDiscoveryClientForConfig(kube.AdminConfig())
	must(t, err)
	groups, err := restmapper.GetAPIGroupResources(disco)
	must(t, err)
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	stream, err := os.ReadFile(file)
	must(t, err)
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096); ; {
		var content map[string]any
		if err := d.Decode(&content); err != nil {
			break
		}
		u := &unstructured.Unstructured{Object: content}
		gvk := u.GroupVersionKind()
		m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		must(t, err)
		objects := generic.Resource(m.Resource).Namespace("")
		if m.Scope.Name() == meta.RESTScopeNameNamespace {
			u.SetNamespace(namespace)
			objects = generic.Resource(m.Resource).Namespace(namespace)
		}
		if u.GetKind() == "Event" {
			must(t, unstructured.SetNestedField(u.Object, namespace, "involvedObject", "namespace"))
		}
		made, err := objects.Create(ctx, u, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() {
			_ = objects.Delete(context.Background(), made.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		})
		if status, ok := content["status"]; ok {
			made.Object["status"] = status
			_, err = objects.UpdateStatus(ctx, made, metav1.UpdateOptions{})
			must(t, err)
		}
	}
}
