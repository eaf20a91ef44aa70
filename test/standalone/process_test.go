// Package standalone runs the program `kubeweir standalone` as its users do.
package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// programs are kubeweir and kubectl, built once.
type programs struct{ kubeweir, kubectl string }

var built = sync.OnceValues(func() (programs, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	paths, err := realkube.Binaries(ctx)
	if err != nil {
		return programs{}, err
	}
	path, err := realkube.Kubeweir(ctx)
	return programs{kubeweir: path, kubectl: paths.Kubectl}, err
})

func tools(t *testing.T) programs {
	t.Helper()
	p, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// process is a running kubeweir.
type process struct {
	t          *testing.T
	cmd        *exec.Cmd
	stderr     *output
	done       chan error
	kubeconfig string
	ready      time.Duration // time from the start of the process
	work       time.Duration // processor time until then
}

// output collects what a process prints and signals new output.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	select {
	case o.grown <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var (
	readyLine      = regexp.MustCompile(`(?m)^kubeweir: ready on https://127\.0\.0\.1:\d+$`)
	kubeconfigLine = regexp.MustCompile(`(?m)^kubeweir: export KUBECONFIG=(\S+)$`)
)

// start starts kubeweir on a data folder and waits until it is ready.
func start(t *testing.T, dataDir string, args ...string) *process {
	t.Helper()
	p := launch(t, dataDir, args...)
	began := time.Now()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for !readyLine.MatchString(p.stderr.String()) {
		select {
		case <-p.stderr.grown:
		case err := <-p.done:
			p.done <- err
			t.Fatalf("kubeweir ended: %v\n%s", err, p.stderr)
		case <-deadline.C:
			t.Fatalf("kubeweir is not ready\n%s", p.stderr)
		}
	}
	p.ready, p.work = time.Since(began), p.processorTime()
	p.kubeconfig = kubeconfigLine.FindStringSubmatch(p.stderr.String())[1]
	return p
}

// launch starts kubeweir and does not wait.
func launch(t *testing.T, dataDir string, args ...string) *process {
	t.Helper()
	p := &process{t: t, stderr: &output{grown: make(chan struct{}, 1)}, done: make(chan error, 1)}
	args = append([]string{"standalone", "--data-dir", dataDir, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--shutdown-drain", "1s"}, args...)
	p.cmd = exec.Command(tools(t).kubeweir, args...)
	p.cmd.Env = realkube.KubeweirEnv()
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(p.kill)
	return p
}

// exit waits for the end and returns the exit code.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case err := <-p.done:
		p.done <- err
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode()
		}
		if err != nil {
			p.t.Fatal(err)
		}
		return 0
	case <-time.After(30 * time.Second):
		p.t.Fatalf("kubeweir does not end\n%s", p.stderr)
		return 0
	}
}

// stop ends it with SIGTERM, as an operator does.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if code := p.exit(); code != 0 {
		p.t.Errorf("exit code %d\n%s", code, p.stderr)
	}
}

// kill ends it with SIGKILL, like a crash.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	err := <-p.done
	p.done <- err
}

// kubectl runs one command line and returns its output.
func (p *process) kubectl(line string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig, "PATH="+filepath.Dir(tools(p.t).kubectl)+":"+os.Getenv("PATH"), "HOME="+p.t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s: %v\n%s\n%s", line, err, out, p.stderr)
	}
	return string(out)
}

func (p *process) client() *kubernetes.Clientset {
	p.t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		p.t.Fatal(err)
	}
	c.QPS = -1
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		p.t.Fatal(err)
	}
	return k
}

// processorTime returns the processor time that the process has used, in all its threads.
func (p *process) processorTime() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(stat, []byte(") ")) // the program's name may contain anything
	fields := strings.Fields(string(rest))
	var ticks int64 // in units of 10 ms, which the kernel uses for all programs
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
