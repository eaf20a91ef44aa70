package charts

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestDocumentedCommands runs the install commands of the READMEs, the commands that Helm then
// prints, the commands of the runbooks, and those of the pages about installation and controllers.
// test/deploy/kubelet runs the commands that need a kubelet.
func TestDocumentedCommands(t *testing.T) {
	clients, err := kubernetes.NewForConfig(kube.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"helm3", "helm4"} {
		t.Run(name, func(t *testing.T) {
			r := newReader(t, name)
			r.follow(r.enter(line(t, r.root, "deploy/charts/kubeweir/README.md", "helm install ")))
			r.enter("helm uninstall kubeweir -n kubeweir")
			r.follow(r.enter(line(t, r.root, "README.md", "helm install ")))
			for _, command := range console(t, filepath.Join(r.root, "docs", "runbooks", "README.md"), 4) {
				if strings.Contains(command, " POD") {
					command = strings.ReplaceAll(command, "POD", firstPod(t, clients))
				}
				r.enter(command)
			}
			config, err := clients.CoreV1().ConfigMaps("kubeweir").Get(t.Context(), "kubeweir", metav1.GetOptions{})
			if err != nil || !strings.Contains(config.Data["config.yaml"], "historyBytes: 128Mi") {
				t.Errorf("the setting has not changed: %v, %v", config.Data, err)
			}
			r.enter("kubectl create namespace shop --dry-run=client -o yaml | kubectl apply -f -")
			for _, command := range console(t, filepath.Join(r.root, "docs", "controller.md"), 3) {
				r.enter(command)
			}
			role, err := clients.RbacV1().ClusterRoles().Get(t.Context(), "kubeweir-gateway", metav1.GetOptions{})
			if err != nil || !strings.Contains(role.String(), "secrets") || !strings.Contains(role.String(), "example.com") {
				t.Errorf("the rights are not granted: %v, %v", role, err)
			}
			r.enter("helm uninstall kubeweir -n kubeweir")
			for _, command := range console(t, filepath.Join(r.root, "docs", "install.md"), 7) {
				r.enter(command)
			}
		})
	}
}

var valuesBlock = regexp.MustCompile("(?s)```yaml\n(# values\\.yaml\n.*?)```")

// TestValuesInPages renders the chart with each example of values in the documentation.
func TestValuesInPages(t *testing.T) {
	root, err := realkube.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, example := range valuesBlock.FindAllStringSubmatch(string(text), -1) {
			examples++
			if out, err := template("helm4", example[1]); err != nil {
				t.Errorf("%s: %v\n%s", page, err, out)
			}
		}
	}
	if examples == 0 {
		t.Error("found no example")
	}
}

// A reader runs commands as the cluster's administrator in a folder that contains deploy, like a
// checkout of the repository.
type reader struct {
	t    *testing.T
	root string // of the repository
	dir  string // working directory
	env  []string
}

func newReader(t *testing.T, helm string) *reader {
	t.Helper()
	root, err := realkube.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	paths, err := realkube.Binaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(helms[helm], filepath.Join(dir, "helm")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "deploy"), filepath.Join(dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := kube.WriteKubeconfig(kubeconfig, kube.URL(), kube.ServingCAFile(), kube.AdminToken()); err != nil {
		t.Fatal(err)
	}
	return &reader{t: t, root: root, dir: dir, env: append(os.Environ(), "PATH="+dir+":"+filepath.Dir(paths.Kubectl)+":"+os.Getenv("PATH"),
		"KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+dir, "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir)}
}

// enter runs a command and returns its output.
func (r *reader) enter(command string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), waitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Env, cmd.Dir = r.env, r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// follow runs the commands of a chart's notes, except those that need a kubelet.
func (r *reader) follow(notes string) {
	r.t.Helper()
	followed := 0
	for line := range strings.Lines(notes) {
		command := strings.TrimSpace(line)
		if !strings.HasPrefix(line, "  kubectl ") || beyond.MatchString(command) {
			continue
		}
		r.enter(command)
		followed++
	}
	if followed < 3 {
		r.t.Errorf("%d commands of the notes were run:\n%s", followed, notes)
	}
}

// beyond matches commands that need a kubelet.
var beyond = regexp.MustCompile(` port-forward | logs | rollout status | --context=`)

// line returns the first line of a page with the prefix.
func line(t *testing.T, root, page, prefix string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("%s has no line that begins with %q", page, prefix)
	return ""
}

var consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")

// console returns the commands of a page's console blocks, except those that need a kubelet, and
// requires that there are at least least of them.
func console(t *testing.T, page string, least int) (commands []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range consoleBlock.FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(b[1]) {
			command, ok := strings.CutPrefix(line, "$ ")
			if ok && !beyond.MatchString(command) {
				commands = append(commands, strings.TrimSpace(command))
			}
		}
	}
	if len(commands) < least {
		t.Fatalf("%s has %d commands", page, len(commands))
	}
	return commands
}

// firstPod creates the pod that the Deployment's controller would create, and returns its name.
func firstPod(t *testing.T, clients kubernetes.Interface) string {
	t.Helper()
	deployment, err := clients.AppsV1().Deployments("kubeweir").Get(t.Context(), "kubeweir", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	template := deployment.Spec.Template
	template.Name = "kubeweir-0"
	p := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	if _, err := clients.CoreV1().Pods("kubeweir").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return p.Name
}
