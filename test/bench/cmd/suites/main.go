// Command suites runs other projects' test suites that use envtest, unmodified, with kube-apiserver
// and etcd and with kubeweir's stand-ins for them (`kubeweir envtest-assets`), and writes a table of
// results, time, processor time and memory. It takes an hour or more, and needs the Go module proxy.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/kubeweir/kubeweir/test/bench"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// suite is a module with tests.
type suite struct {
	module, version string
	packages        []string
}

var suites = []suite{
	{"sigs.k8s.io/controller-runtime", "v0.25.2", []string{
		"pkg/client", "pkg/client/apiutil", "pkg/builder", "pkg/cache", "pkg/controller", "pkg/envtest", "pkg/manager", "pkg/source", "pkg/webhook",
	}},
	{"github.com/fluxcd/pkg/ssa", "v0.78.0", []string{"."}},
	{"github.com/open-policy-agent/gatekeeper/v3", "v3.23.1", []string{
		"pkg/controller/config", "pkg/controller/connectionstatus", "pkg/controller/mutators/core", "pkg/readiness", "pkg/watch",
	}},
	{"sigs.k8s.io/karpenter", "v1.14.1", []string{
		"pkg/apis/v1", "pkg/controllers/nodeclaim/lifecycle", "pkg/controllers/nodepool/hash", "pkg/controllers/state",
	}},
}

const pageHead = `# Test suites with envtest

%s, %d cores, %s, %s. Written by

    go run ./test/bench/cmd/suites -out docs/bench/suites.md

which runs the test suites of other projects, unmodified, in turn with kube-apiserver and etcd and with the folder of
` + "`kubeweir envtest-assets`" + `. In each column the first figure is kube-apiserver's and etcd's, the second
one kubeweir's. Tests that passed with one of them only are named. The processor time includes that of the tests
themselves. The memory is that of the servers at its highest, where pages that processes share count once.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	only := flag.String("run", "", "run only the packages whose path matches this `regexp`")
	rounds := flag.Int("rounds", 1, "`times` to run each package with each API server, in turn")
	dir := flag.String("dir", filepath.Join(".cache", "suites"), "`folder` for modules, test programs and their output")
	out := flag.String("out", "", "write a page with the table to this `file`")
	flag.Parse()
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if *dir, err = filepath.Abs(*dir); err != nil {
		return err
	}
	assets, err := assetFolders(ctx, *dir)
	if err != nil {
		return err
	}
	var table strings.Builder
	to := io.MultiWriter(os.Stdout, &table)
	fmt.Fprintln(to, "| package | tests passed | time | processor time | memory |\n|---|---|--:|--:|--:|")
	for _, s := range suites {
		for _, pkg := range s.packages {
			name := strings.TrimSuffix(s.module+"/"+pkg, "/.")
			if !chosen.MatchString(name) {
				continue
			}
			program, err := s.build(ctx, *dir, pkg)
			if err != nil {
				return err
			}
			var outcomes [2]outcome
			for range *rounds {
				for i := range outcomes {
					o, err := program.run(ctx, assets[i])
					if err != nil {
						return err
					}
					outcomes[i].add(o)
				}
			}
			fmt.Fprintf(to, "| %s@%s | %s |\n", name, s.version, compare(outcomes[0], outcomes[1]))
		}
	}
	if *out == "" {
		return nil
	}
	head := fmt.Sprintf(pageHead, bench.CPUModel(), runtime.NumCPU(), runtime.Version(), time.Now().Format(time.DateOnly))
	return os.WriteFile(*out, []byte(head+table.String()), 0o644)
}

// assetFolders returns the folders for KUBEBUILDER_ASSETS: of kube-apiserver and etcd, and of kubeweir.
func assetFolders(ctx context.Context, dir string) (folders [2]string, err error) {
	paths, err := realkube.Binaries(ctx)
	if err != nil {
		return folders, err
	}
	kubeweir, err := realkube.Kubeweir(ctx)
	if err != nil {
		return folders, err
	}
	// kubeweir takes the kubectl beside it.
	folders = [2]string{filepath.Dir(paths.KubeAPIServer), filepath.Join(dir, "assets")}
	output, err := exec.CommandContext(ctx, kubeweir, "envtest-assets", folders[1]).CombinedOutput()
	if err != nil {
		return folders, fmt.Errorf("kubeweir envtest-assets: %w\n%s", err, output)
	}
	return folders, nil
}

// program is the test program of a package.
type program struct {
	path, dir string
	ginkgo    bool
}

// build makes a copy of the module, because tests write to its folders, and builds the test program.
func (s *suite) build(ctx context.Context, dir, pkg string) (*program, error) {
	source, err := command(ctx, dir, "go", "mod", "download", "-json", s.module+"@"+s.version)
	if err != nil {
		return nil, err
	}
	found := regexp.MustCompile(`"Dir": "(.*)"`).FindStringSubmatch(source)
	if found == nil {
		return nil, fmt.Errorf("%s@%s: no folder in %s", s.module, s.version, source)
	}
	module := filepath.Join(dir, filepath.Base(found[1]))
	if _, err := os.Stat(module); err != nil {
		if err := os.CopyFS(module, os.DirFS(found[1])); err != nil {
			return nil, err
		}
	}
	p := &program{dir: filepath.Join(module, pkg)}
	p.path = filepath.Join(p.dir, "suite.test")
	if _, err := command(ctx, module, "go", "test", "-vet=off", "-c", "-o", p.path, "./"+pkg); err != nil {
		return nil, err
	}
	imports, err := command(ctx, module, "go", "list", "-f", "{{.TestImports}} {{.XTestImports}}", "./"+pkg)
	p.ginkgo = strings.Contains(imports, "onsi/ginkgo/v2")
	return p, err
}

func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GONOSUMDB=*")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// run runs the test program once.
func (p *program) run(ctx context.Context, assets string) (outcome, error) {
	log, err := os.Create(filepath.Join(p.dir, filepath.Base(assets)+".log"))
	if err != nil {
		return outcome{}, err
	}
	defer log.Close()
	report := filepath.Join(p.dir, "report.json")
	args := []string{"-test.v", "-test.timeout=30m"}
	if p.ginkgo {
		args = append(args, "-ginkgo.json-report="+report, "-ginkgo.seed=1")
	}
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+assets)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	stop := make(chan struct{})
	peak := make(chan int64)
	go func() { peak <- peakMemory(cmd.Process.Pid, stop) }()
	_ = cmd.Wait() // the report says which tests failed
	o := outcome{time: time.Since(began), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	close(stop)
	o.memory = <-peak
	if o.tests, err = p.results(log.Name(), report); err != nil || len(o.tests) == 0 {
		fmt.Fprintf(os.Stderr, "suites: no tests ran, %v; see %s\n", err, log.Name())
	}
	return o, ctx.Err()
}
