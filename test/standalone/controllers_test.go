package standalone

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// controllerCommands returns the commands of docs/standalone.md that start Kubernetes' controllers
// and scheduler.
func controllerCommands(t *testing.T, dataDir string) []string {
	t.Helper()
	block := regexp.MustCompile("(?s)```sh\n(kube-controller-manager .*?)```").FindStringSubmatch(page(t, "docs/standalone.md"))
	if block == nil {
		t.Fatal("docs/standalone.md has no commands that start controllers")
	}
	text := strings.ReplaceAll(strings.ReplaceAll(block[1], "\\\n", ""), "DATA_DIR", dataDir)
	return strings.Split(strings.TrimSpace(text), "\n")
}

// TestReadmeControllers starts the controllers as docs/standalone.md says and checks that a
// Deployment of the README gets Pods, and the Pods a node.
func TestReadmeControllers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	programs, err := realkube.BuildControllers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, dir)
	env := append(os.Environ(), "KUBECONFIG="+p.kubeconfig, "PATH="+programs+":"+os.Getenv("PATH"))
	for _, command := range controllerCommands(t, dir) {
		beside(t, command, env)
	}
	for _, command := range readmeCommands(t) {
		p.kubectl(command)
	}
	const replicas = 5 // what the README scales to
	demo := p.client().CoreV1().Pods("demo")
	bound := func(want int) {
		t.Helper()
		err := testbed.Poll(ctx, 2*time.Minute, func() error {
			pods, err := demo.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
			if err != nil {
				return err
			}
			n := 0
			for i := range pods.Items {
				if pods.Items[i].Spec.NodeName == "node" {
					n++
				}
			}
			if len(pods.Items) != replicas || n != want {
				return fmt.Errorf("%d Pods of %d, %d of %d have a node", len(pods.Items), replicas, n, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	bound(0)
	createNode(ctx, t, p)
	bound(replicas)
}

// beside runs a command until the test ends. Only its address differs from the default: it listens
// on a free loopback port.
func beside(t *testing.T, command string, env []string) {
	t.Helper()
	address, release, err := realkube.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	host, port, _ := strings.Cut(address, ":")
	line, err := realkube.StartLine(command+" --bind-address "+host+" --secure-port "+port, filepath.Join(t.TempDir(), "log"), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !line.Running() {
			t.Errorf("%s has ended", command)
		}
		line.Kill()
		if log := line.Log(); t.Failed() {
			t.Logf("%s\n%s", command, log[max(0, len(log)-5000):])
		}
	})
}

// createNode creates a node and makes it ready, as its kubelet would.
func createNode(ctx context.Context, t *testing.T, p *process) {
	t.Helper()
	nodes := p.client().CoreV1().Nodes()
	if _, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const status = `{"status":{"capacity":{"cpu":"4","memory":"8Gi","pods":"110"},"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"},
		"conditions":[{"type":"Ready","status":"True"}]}}`
	if _, err := nodes.Patch(ctx, "node", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}
