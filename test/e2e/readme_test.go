package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// shown is a command in a page and the output that the page shows.
type shown struct {
	command string
	lines   []string
}

// readmeConsole returns the console session of the README.
func readmeConsole(t *testing.T, replaced *strings.Replacer) (all []shown) {
	t.Helper()
	root, err := realkube.RepoRoot()
	must(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	must(t, err)
	block := regexp.MustCompile("(?s)```console\n(.*?)```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("the README has no console session")
	}
	for line := range strings.Lines(replaced.Replace(string(block[1]))) {
		line = strings.TrimSpace(line)
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, shown{command: command})
		} else if line != "" && line != "..." {
			last := &all[len(all)-1]
			last.lines = append(last.lines, line)
		}
	}
	if len(all) != 3 {
		t.Fatalf("the README's console has %d commands: %q", len(all), all)
	}
	return all
}

// TestReadme runs the README's console session (a gateway, ten watches and its metrics) and
// compares the output. Only the ports differ, because they may be in use.
func TestReadme(t *testing.T) {
	testbed.Installed(t, "curl", "curl")
	ctx := deadline(t, 3*time.Minute)
	home := t.TempDir()
	listen, admin := reserved(t), reserved(t)
	console := readmeConsole(t, strings.NewReplacer("/home/me", home,
		"127.0.0.1:8443", listen, "127.0.0.1-8443", strings.ReplaceAll(listen, ":", "-"), "127.0.0.1:9444", admin))
	gateway, watches, metrics := console[0], console[1], console[2]
	createReadyDeployment(ctx, t, 5)

	env := readmeEnv(t, home)
	started := startLine(t, gateway.command+" --listen "+listen+" --admin-listen "+admin, env)
	must(t, started.Await(ctx, func(log string) bool { return strings.Contains(log, "kubeweir: ready on ") }))
	for _, line := range gateway.lines {
		if !strings.Contains("\n"+started.Log(), "\n"+line+"\n") {
			t.Fatalf("the gateway does not print %q but\n%s", line, started.Log())
		}
		if export, ok := strings.CutPrefix(line, "kubeweir: export "); ok {
			env = append(env, export)
		}
	}

	// Fill the cache. Watches from before the cache's history are forwarded and not counted as the
	// cache's.
	warm := exec.CommandContext(ctx, "bash", "-c", "kubectl get --raw '/apis/apps/v1/deployments?resourceVersion=0'")
	warm.Env = env
	if out, err := warm.CombinedOutput(); err != nil {
		t.Fatalf("kubectl get --raw: %v: %s", err, out)
	}

	watching := startLine(t, watches.command+"\nwait", env)
	must(t, watching.Await(ctx, func(log string) bool { return showsEach(log, watches.lines, 10) }))
	want := strings.Join(metrics.lines, "\n") + "\n"
	eventually(ctx, t, waitTimeout, func() error {
		cmd := exec.CommandContext(ctx, "bash", "-c", metrics.command)
		cmd.Env = env
		if out, err := cmd.Output(); string(out) != want {
			return fmt.Errorf("%s: %v; got\n%s\nwant\n%s", metrics.command, err, out, want)
		}
		return nil
	})
	// Watches of other tests' gateways may still be ending.
	eventually(ctx, t, waitTimeout, func() error { return oneMoreWatch(ctx, "deployments", 0) })
}

// showsEach reports whether the output of n programs contains all cells of the lines n times,
// except the last cell of each line, the age. The programs print cell by cell, so their lines are
// interleaved.
func showsEach(printed string, lines []string, n int) bool {
	for _, line := range lines {
		cells := strings.Fields(line)
		for _, cell := range cells[:len(cells)-1] {
			if strings.Count(printed, cell) < n {
				return false
			}
		}
	}
	return true
}

func reserved(t *testing.T) string {
	t.Helper()
	address, release, err := realkube.ReservePort()
	must(t, err)
	t.Cleanup(release)
	return address
}

// startLine starts a command that runs until the test ends.
func startLine(t *testing.T, command string, env []string) *realkube.Line {
	t.Helper()
	line, err := realkube.StartLine(command, filepath.Join(t.TempDir(), "log"), env)
	must(t, err)
	t.Cleanup(func() {
		line.Kill()
		if t.Failed() {
			t.Logf("%s\n%s", command, line.Log())
		}
	})
	return line
}

// readmeEnv returns the environment of a user with the programs in PATH and an administrator's
// kubeconfig at the default location.
func readmeEnv(t *testing.T, home string) []string {
	t.Helper()
	paths, err := realkube.Binaries(t.Context())
	must(t, err)
	must(t, os.Mkdir(filepath.Join(home, ".kube"), 0o700))
	must(t, kube.WriteKubeconfig(filepath.Join(home, ".kube", "config"), kube.URL(), kube.ServingCAFile(), kube.AdminToken()))
	bin := t.TempDir()
	must(t, os.Symlink(bed.Program, filepath.Join(bin, "kubeweir")))
	return append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME=", "PATH="+bin+":"+filepath.Dir(paths.Kubectl)+":"+os.Getenv("PATH"))
}

// createReadyDeployment creates the Deployment that the README shows, with the status of ready
// replicas, which a controller would write.
func createReadyDeployment(ctx context.Context, t *testing.T, replicas int32) {
	t.Helper()
	typed, _ := directClients(t)
	labels := map[string]string{"app": "web"}
	d, err := typed.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}},
			},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := typed.AppsV1().Deployments("default").Delete(context.WithoutCancel(ctx), "web", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	d.Status = appsv1.DeploymentStatus{Replicas: replicas, ReadyReplicas: replicas, UpdatedReplicas: replicas, AvailableReplicas: replicas}
	_, err = typed.AppsV1().Deployments("default").UpdateStatus(ctx, d, metav1.UpdateOptions{})
	must(t, err)
}
