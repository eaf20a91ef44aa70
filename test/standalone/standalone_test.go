package standalone

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// page returns a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	root, err := realkube.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readmeCommands returns the kubectl commands of the README's section about an API without a
// cluster.
func readmeCommands(t *testing.T) []string {
	t.Helper()
	block := regexp.MustCompile("(?s)\n## A Kubernetes API without a cluster\n.*?```sh\n(kubectl .*?)```").FindStringSubmatch(page(t, "README.md"))
	if block == nil {
		t.Fatal("the README has no kubectl commands")
	}
	var commands []string
	for line := range strings.Lines(block[1]) {
		line, _, _ = strings.Cut(line, " #")
		if line = strings.TrimSpace(line); line != "" {
			commands = append(commands, line)
		}
	}
	return commands
}

// TestReadme checks what the README promises, across a clean stop and a kill.
func TestReadme(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, dir)
	for _, command := range readmeCommands(t) {
		t.Logf("%s\n%s", command, p.kubectl(command))
	}
	const state = "kubectl get namespaces,deployments,configmaps,customresourcedefinitions,clusterroles -A -o=jsonpath='{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.uid} {.metadata.resourceVersion}{\"\\n\"}{end}'"
	before := p.kubectl(state)
	if !strings.Contains(before, "Deployment demo/web ") {
		t.Errorf("no deployment:\n%s", before)
	}
	p.stop()

	p = start(t, dir)
	if after := p.kubectl(state); after != before {
		t.Errorf("after a clean stop:\n%s\nbefore:\n%s", after, before)
	}
	p.kubectl("kubectl -n demo create configmap written-last --from-literal=a=b")
	before = p.kubectl(state)
	p.kill()

	p = start(t, dir)
	if after := p.kubectl(state); after != before {
		t.Errorf("after a kill:\n%s\nbefore:\n%s", after, before)
	}
	p.stop()
	info, err := os.Stat(p.kubeconfig)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig: %v, %v", info, err)
	}
}

// TestSecondProcess checks that a second process on the same data folder fails with an explanation.
func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir)
	second := launch(t, dir)
	if code := second.exit(); code != 1 || !regexp.MustCompile(`^kubeweir: --data-dir: the data folder \S+ is in use by another process\n$`).MatchString(second.stderr.String()) {
		t.Errorf("exit code %d: %s", code, second.stderr)
	}
	first.kubectl("kubectl get namespaces")
	first.stop()
	start(t, dir).stop()
}

func TestBadPlugin(t *testing.T) {
	p := launch(t, t.TempDir(), "--enable-admission-plugins", "Nothing")
	if code := p.exit(); code != 2 || !strings.Contains(p.stderr.String(), "Nothing") || strings.Count(p.stderr.String(), "\n") != 1 {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
}

// TestCredentials checks certificates and tokens of other authorities, and anonymous requests.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte("secret,alice,1,\"system:masters\"\nother,bob,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "--token-auth-file", tokens)
	whoami := func(flags string) string {
		return p.kubectl("kubectl auth whoami -o jsonpath='{.status.userInfo.username} {.status.userInfo.groups}' " + flags)
	}
	for flags, want := range map[string]string{
		"":                                    `kubernetes-admin ["system:masters","system:authenticated"]`,
		"--as=jane":                           `jane ["system:authenticated"]`,
		"--as=jane --as-group=devs":           `jane ["devs","system:authenticated"]`,
		"--token=secret " + withoutCert(t, p): `alice ["system:masters","system:authenticated"]`,
		"--token=other " + withoutCert(t, p):  `bob ["system:authenticated"]`,
	} {
		if got := whoami(flags); got != want {
			t.Errorf("%s: %s, want %s", flags, got, want)
		}
	}
	p.kubectl("kubectl -n default create serviceaccount robot")
	token := strings.TrimSpace(p.kubectl("kubectl -n default create token robot"))
	if got := whoami("--token=" + token + " " + withoutCert(t, p)); got != `system:serviceaccount:default:robot ["system:serviceaccounts","system:serviceaccounts:default","system:authenticated"]` {
		t.Errorf("robot: %s", got)
	}
	p.stop()
}

// withoutCert returns flags for a kubeconfig without credentials.
func withoutCert(t *testing.T, p *process) string {
	t.Helper()
	content, err := os.ReadFile(p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	content = regexp.MustCompile(`(?m)^\s+client-(certificate|key)-data:.*$`).ReplaceAll(content, nil)
	path := filepath.Join(t.TempDir(), "anonymous")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return "--kubeconfig=" + path
}

const (
	// startLimit is the maximum processor time of a start. Unlike elapsed time, it does not depend
	// on other load.
	startLimit = time.Second
	// objects is the number of objects in a data folder that is not empty.
	objects = 10_000
	writers = 16
)

// TestStart checks that a start uses little processor time, with an empty data folder and with many
// objects.
func TestStart(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	empty := p.work
	t.Logf("empty: ready after %v and %v of processors", p.ready.Round(time.Millisecond), p.work)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	began := time.Now()
	fill(ctx, t, p)
	t.Logf("%d objects written in %v", objects, time.Since(began).Round(time.Millisecond))
	p.stop()

	p = start(t, dir)
	full := p.work
	t.Logf("%d objects: ready after %v and %v of processors", objects, p.ready.Round(time.Millisecond), p.work)
	list, err := p.client().CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != objects {
		t.Errorf("%d objects, %v", len(list.Items), err)
	}
	p.stop()
	if empty > startLimit || full > startLimit {
		t.Errorf("a start took %v and %v of processors, more than %v", empty, full, startLimit)
	}
}

func fill(ctx context.Context, t *testing.T, p *process) {
	t.Helper()
	client := p.client()
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := w; i < objects; i += writers {
				c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%05d", i)}, Data: map[string]string{"text": strings.Repeat("x", 1000)}}
				if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, c, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// TestOwnServingCertificate starts with a self-signed certificate of the user's. The kubeconfig works.
func TestOwnServingCertificate(t *testing.T) {
	dir := t.TempDir()
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := errors.Join(os.WriteFile(certFile, certPEM, 0o600), os.WriteFile(keyFile, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	server, err := realkube.StartStandalone(ctx, realkube.StandaloneOptions{
		Dir: dir, ExtraArgs: []string{"--tls-cert-file=" + certFile, "--tls-private-key-file=" + keyFile},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	cfg, err := server.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
