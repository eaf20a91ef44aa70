//go:build linux

package kubelet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

const waitTimeout = 2 * time.Minute // bounds each wait

// A session is the shell of a cluster administrator, in a folder that contains deploy, like a
// checkout of the repository.
type session struct {
	t   *testing.T
	dir string
	env []string
}

func newSession(t *testing.T) *session {
	t.Helper()
	needNode(t)
	t.Cleanup(func() {
		if log := node.Log(); t.Failed() {
			t.Logf("the end of the kubelet's log:\n%s", log[max(0, len(log)-3000):])
		}
	})
	paths, err := realkube.Binaries(t.Context())
	must(t, err)
	dir := t.TempDir()
	must(t, os.Symlink(helm, filepath.Join(dir, "helm")))
	must(t, os.Symlink(filepath.Join(root, "deploy"), filepath.Join(dir, "deploy")))
	kubeconfig := filepath.Join(dir, "kubeconfig")
	must(t, kube.WriteKubeconfig(kubeconfig, kube.URL(), kube.ServingCAFile(), kube.AdminToken()))
	return &session{t: t, dir: dir, env: append(os.Environ(), "PATH="+dir+":"+filepath.Dir(paths.Kubectl)+":"+os.Getenv("PATH"),
		"KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+dir, "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir)}
}

// in returns the session for a subtest.
func (s *session) in(t *testing.T) *session {
	c := *s
	c.t = t
	return &c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *session) command(ctx context.Context, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-ec", text)
	cmd.Env, cmd.Dir, cmd.WaitDelay = s.env, s.dir, time.Second
	return cmd
}

// enter runs commands, which must succeed, and returns their output.
func (s *session) enter(text string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	out, err := s.command(ctx, text).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", text, err, out)
	}
	return string(out)
}

// ports are locked by sessions that forward them: all tests use the documented ports.
var ports = map[string]*sync.Mutex{"6443": {}, "8443": {}, "9443": {}, "9444": {}, "19444": {}}

// forwarded matches the port in a command that forwards one.
var forwarded = regexp.MustCompile(` (\d+)(:\d+)?( +#.*)?( &)?$`)

// forward runs a command that forwards a port, returns once it does, and returns a function that
// ends it.
func (s *session) forward(text string) (stop func()) {
	s.t.Helper()
	port := ports[forwarded.FindStringSubmatch(text)[1]]
	port.Lock()
	ctx, cancel := context.WithCancel(s.t.Context())
	cmd := s.command(ctx, "exec "+strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "&")))
	out, err := cmd.StdoutPipe()
	errs := &strings.Builder{}
	cmd.Stderr = errs
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		port.Unlock()
		s.t.Fatal(err)
	}
	drained := make(chan struct{})
	stop = sync.OnceFunc(func() {
		cancel()
		<-drained
		_ = cmd.Wait()
		port.Unlock()
	})
	s.t.Cleanup(stop) // other tests wait for the port, even if this test fails
	line, err := bufio.NewReader(out).ReadString('\n')
	if !strings.HasPrefix(line, "Forwarding from ") {
		close(drained)
		stop()
		s.t.Fatalf("%s: %q, %v\n%s", text, line, err, errs)
	}
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, out)
	}()
	return stop
}

// follow runs the commands of a chart's notes in order and returns the output of the last one.
func (s *session) follow(notes string) string {
	s.t.Helper()
	var script []string
	followed := 0
	for line := range strings.Lines(notes) {
		command, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "  ")
		switch {
		case !ok || !typed.MatchString(command) || console.MatchString(command):
			continue
		case strings.Contains(command, " port-forward "):
			// The commands before it must be done by then.
			s.enter(strings.Join(script, "\n"))
			defer s.forward(command)()
		default:
			script = append(script, command)
		}
		followed++
	}
	if followed < 5 {
		s.t.Fatalf("%d commands of the notes were run:\n%s", followed, notes)
	}
	return s.enter(strings.Join(script, "\n"))
}

// typed matches the beginning of the notes' commands.
var typed = regexp.MustCompile(`^(kubectl |export |token=\$)`)

// console matches the command for the console, which is an alternative.
var console = regexp.MustCompile(` port-forward (deployment|statefulset)/`)

// line returns the first line of a page of the repository with the prefix.
func line(t *testing.T, page, prefix string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("%s has no line that begins with %q", page, prefix)
	return ""
}

// namespace creates a namespace that enforces a Pod Security Standard.
func namespace(t *testing.T, name, standard string) {
	t.Helper()
	needNode(t)
	_, err := clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": standard},
	}}, metav1.CreateOptions{})
	must(t, err)
}

// eventually polls until a condition holds.
func eventually(t *testing.T, holds func() error) {
	t.Helper()
	if err := testbed.Poll(t.Context(), waitTimeout, holds); err != nil {
		t.Fatal(err)
	}
}

// pods returns the pods of a namespace that are not being deleted.
func pods(t *testing.T, namespace string) []corev1.Pod {
	t.Helper()
	list, err := clients.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	var stay []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			stay = append(stay, p)
		}
	}
	return stay
}

// ready waits until a namespace has that many pods, all of them ready, and returns them. It ignores
// pods that are being deleted.
func ready(t *testing.T, namespace string, number int) (found []corev1.Pod) {
	t.Helper()
	eventually(t, func() error {
		found = pods(t, namespace)
		if len(found) != number {
			return fmt.Errorf("%s has %d pods", namespace, len(found))
		}
		for _, p := range found {
			if !isReady(&p) {
				return fmt.Errorf("%s is not ready: %+v", p.Name, p.Status)
			}
		}
		return nil
	})
	return found
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// reads waits until a command prints all texts.
func (s *session) reads(command string, texts ...string) string {
	s.t.Helper()
	var out []byte
	eventually(s.t, func() (err error) {
		out, err = s.command(s.t.Context(), command).CombinedOutput()
		for _, text := range texts {
			if !strings.Contains(string(out), text) {
				return fmt.Errorf("%s: %v: %q is not in\n%s", command, err, text, out)
			}
		}
		return nil
	})
	return string(out)
}

// get returns the body of a page.
func get(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v\n%s", url, resp.Status, err, body)
	}
	return string(body)
}
