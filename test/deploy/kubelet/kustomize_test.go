//go:build linux

package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// block returns the first block of commands below a heading of deploy/kustomize/README.md.
func block(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "kustomize", "README.md"))
	must(t, err)
	_, below, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	commands := shellBlock.FindStringSubmatch(below)
	if !ok || commands == nil {
		t.Fatalf("the README has no commands below %q", heading)
	}
	return commands[1]
}

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// page runs the commands of a block in one shell. Commands that forward a port run until the others
// are done.
func (s *session) page(commands string) string {
	s.t.Helper()
	var script []string
	for line := range strings.Lines(commands) {
		if strings.Contains(line, " port-forward ") {
			s.enter(strings.Join(script, ""))
			script = nil
			defer s.forward(strings.TrimSpace(line))()
		} else {
			script = append(script, line)
		}
	}
	return s.enter(strings.Join(script, ""))
}

// makeCertificate runs the README's commands for users without cert-manager in an existing
// namespace.
func (s *session) makeCertificate(namespace string) {
	s.t.Helper()
	var script []string
	for line := range strings.Lines(block(s.t, "Certificates")) {
		if !strings.HasPrefix(line, "kubectl create namespace ") {
			script = append(script, strings.Replace(line, "ns=kubeweir ", "ns="+namespace+" ", 1))
		}
	}
	s.page(strings.Join(script, ""))
}

// TestNode checks that a gateway on every node waits for its certificate, which is created as the
// README says. Pods reach it through its Service, programs on the host network through a host port.
func TestNode(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.enter("kubectl apply -k deploy/kustomize/node")
	s.reads("kubectl -n kubeweir-node describe pods --show-events", `MountVolume.SetUp failed for volume "config" : secret "kubeweir-tls" not found`)
	s.makeCertificate("kubeweir-node")
	ready(t, "kubeweir-node", 1)
	commands := strings.ReplaceAll(block(t, "front, node"), "kubectl -n kubeweir ", "kubectl -n kubeweir-node ")
	if version := s.page(commands); !strings.Contains(version, `"gitVersion": "v1.37.`) {
		t.Errorf("the version is %s", version)
	}
	if version := s.enter(`kubectl --server https://127.0.0.1:18443 --certificate-authority ca.crt --token "$(kubectl create token default)" get --raw /version`); !strings.Contains(version, `"gitVersion": "v1.37.`) {
		t.Errorf("by the port of the node, the version is %s", version)
	}
}

// TestStandaloneFolder runs the README's commands for a Kubernetes API on a volume.
func TestStandaloneFolder(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	const namespace = "kubeweir-standalone"
	s.enter("kubectl create namespace " + namespace)
	s.makeCertificate(namespace)
	secrets, rest, _ := strings.Cut(block(t, "standalone"), "kubectl apply ")
	s.enter(secrets)
	apply, rest, _ := strings.Cut(rest, "\n")
	s.enter("kubectl apply " + apply)
	eventually(t, func() error {
		claims, err := clients.CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(claims.Items) != 1 {
			err = fmt.Errorf("%d claims", len(claims.Items))
		}
		return err
	})
	localVolume(t, namespace, "10Gi", corev1.ReadWriteOncePod)
	ready(t, namespace, 1)
	if namespaces := s.page(rest); !strings.Contains(namespaces, "kube-system") {
		t.Errorf("its namespaces are\n%s", namespaces)
	}
}

// TestSidecar runs the unmodified example, whose program is a kubectl without any configuration for
// a gateway. The gateway starts before the program and ends after it.
func TestSidecar(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.enter("kubectl apply -k deploy/kustomize/sidecar")
	pod := ready(t, "kubeweir-sidecar", 1)[0]
	s.reads("kubectl -n kubeweir-sidecar logs deploy/example", "kubeweir-sidecar ", pod.Name)
	s.reads("kubectl -n kubeweir-sidecar logs deploy/example -c kubeweir", "collection synced", "resource=pods ")
	stop := s.forward("kubectl -n kubeweir-sidecar port-forward deploy/example 19444")
	// The program's watch may be forwarded: it began with a list that is older than the cache.
	if metrics := get(t, "http://localhost:19444/metrics"); !listed.MatchString(metrics) {
		t.Error("the gateway has not served the program's list")
	}
	stop()

	must(t, engine.Kill("kubeweir-sidecar", pod.Name, "kubeweir"))
	eventually(t, func() error {
		p, err := clients.CoreV1().Pods("kubeweir-sidecar").Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if gateway := p.Status.InitContainerStatuses[0]; gateway.RestartCount != 1 || !gateway.Ready || !isReady(p) {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	s.reads("kubectl -n kubeweir-sidecar logs deploy/example", pod.Name)

	s.enter("kubectl -n kubeweir-sidecar delete deployment example")
	eventually(t, func() error {
		if codes := engine.Ended("kubeweir-sidecar", pod.Name, "kubeweir"); len(codes) != 2 || codes[1] != 0 {
			return fmt.Errorf("the gateway ended with %v, the program with %v", codes, engine.Ended("kubeweir-sidecar", pod.Name, "example"))
		}
		return nil
	})
}

var listed = regexp.MustCompile(`kubeweir_requests_total\{code="200",group="",resource="pods",source="[a-z]+",verb="list"\} [1-9]`)
