// Package kubeweirtest starts kubeweir, a Kubernetes API server, for the Go tests of any module:
//
//	func TestController(t *testing.T) {
//		client := kubernetes.NewForConfigOrDie(kubeweirtest.Start(t))
//		...
//	}
//
// It runs the program kubeweir, whose absolute path the environment variable KUBEWEIR_BIN has or which
// is on PATH.
// Package origin/origintest runs the same server inside the test's process, but needs kubeweir's
// replacements of k8s.io modules in go.mod; this package only needs client-go.
//
// To share one server among the tests of a package, start it in TestMain:
//
//	var config *rest.Config
//
//	func TestMain(m *testing.M) {
//		server, err := kubeweirtest.Launch()
//		if err != nil {
//			log.Fatal(err)
//		}
//		config = server.Config()
//		code := m.Run()
//		server.Stop()
//		os.Exit(code)
//	}
package kubeweirtest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// programVariable is the environment variable with the path of the program.
const programVariable = "KUBEWEIR_BIN"

const (
	// startTimeout bounds a start, which takes half a second on an idle machine.
	startTimeout = time.Minute
	// logLines is how many lines of the server's log are saved.
	logLines = 200
	// ready and testAPI begin lines of kubeweir: that it is ready, and where the test API is.
	ready   = "kubeweir: ready on "
	testAPI = "kubeweir: test API on "
)

// Start starts a server that ends with the test, and returns the administrator's configuration. args
// are flags of `kubeweir standalone`, for example "--controllers=namespace,garbagecollector". The
// objects are in memory, and keys in a folder of the server's own: --data-dir is an error. The admission
// plugin ServiceAccount is disabled, so that Pods can be created in namespaces without service accounts;
// "--enable-admission-plugins=ServiceAccount" enables it. The test fails if the server ends before it. If the test fails, it logs the end
// of the server's log.
func Start(t testing.TB, args ...string) *rest.Config {
	t.Helper()
	s, err := Launch(args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-s.done:
			t.Errorf("kubeweir has ended during the test: %s", s.cmd.ProcessState)
		default:
		}
		s.Stop()
		if t.Failed() {
			t.Logf("the end of kubeweir's log:\n%s", s.Log())
		}
	})
	return s.Config()
}

// Server is a running server. It is safe for concurrent use.
type Server struct {
	cmd    *exec.Cmd
	dir    string // for keys and the kubeconfig
	config *rest.Config
	done   chan struct{} // closed when the process has ended

	mu      sync.Mutex
	testAPI string   // guarded by mu
	log     []string // guarded by mu: the last logLines
}

// Launch starts a server and returns when it is ready. The caller must call Stop. Except on Windows,
// the server also ends when the process that started it does. See Start for args.
func Launch(args ...string) (_ *Server, err error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	if len(valuesOf("data-dir", args)) > 0 {
		return nil, errors.New("kubeweirtest: --data-dir cannot be set: each server has a folder of its own, which Stop deletes")
	}
	s := &Server{done: make(chan struct{})}
	if s.dir, err = os.MkdirTemp("", "kubeweirtest-"); err != nil {
		return nil, fmt.Errorf("kubeweirtest: %w", err)
	}
	flags := []string{
		"standalone", "--in-memory", "--exit-with-parent", "--data-dir=" + s.dir, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--test-api",
		"--log-level=error", "--shutdown-drain=0s",
	}
	if !slices.Contains(valuesOf("enable-admission-plugins", args), "ServiceAccount") {
		flags = append(flags, "--disable-admission-plugins=ServiceAccount")
	}
	s.cmd = exec.Command(program, append(flags, args...)...)
	stderr, err := s.cmd.StderrPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		_ = os.RemoveAll(s.dir)
		return nil, fmt.Errorf("kubeweirtest: %w", err)
	}
	started := make(chan struct{})
	go s.run(bufio.NewReader(stderr), sync.OnceFunc(func() { close(started) }))
	if err := s.await(started); err != nil {
		s.Stop()
		return nil, fmt.Errorf("kubeweirtest: %s: %w; its log:\n%s", program, err, s.Log())
	}
	return s, nil
}

// valuesOf returns the values of a flag, which commas separate.
func valuesOf(flag string, args []string) []string {
	var values []string
	for i, arg := range args {
		name, value, found := strings.Cut(arg, "=")
		if name != "--"+flag {
			continue
		}
		if !found && i+1 < len(args) {
			value = args[i+1]
		}
		for item := range strings.SplitSeq(value, ",") {
			values = append(values, strings.TrimSpace(item))
		}
	}
	return values
}

// find returns the path of the program.
func find() (string, error) {
	if path := os.Getenv(programVariable); path != "" {
		if !filepath.IsAbs(path) {
			return "", fmt.Errorf("kubeweirtest: %s=%s must be an absolute path, because go test runs the tests of each package in the package's folder", programVariable, path)
		}
		return path, nil
	}
	path, err := exec.LookPath("kubeweir")
	if err != nil {
		return "", fmt.Errorf("kubeweirtest: kubeweir is not on PATH, and %s does not name it: %w", programVariable, err)
	}
	return path, nil
}

// run reads the log until the process ends.
func (s *Server) run(stderr *bufio.Reader, started func()) {
	defer close(s.done)
	for {
		line, err := stderr.ReadString('\n')
		if err != nil && line == "" {
			break
		}
		line = strings.TrimSuffix(line, "\n")
		s.append(line)
		if strings.HasPrefix(line, ready) {
			started()
		}
	}
	_ = s.cmd.Wait() // its error is the state
	s.append("kubeweirtest: the process has ended: " + s.cmd.ProcessState.String())
}

// append appends a line to the log.
func (s *Server) append(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, line)
	s.log = s.log[max(0, len(s.log)-logLines):]
	if url, found := strings.CutPrefix(line, testAPI); found {
		s.testAPI = url
	}
}

// await waits until the server is ready, and reads the kubeconfig.
func (s *Server) await(started <-chan struct{}) (err error) {
	select {
	case <-started:
	case <-s.done:
		return fmt.Errorf("it has ended: %s", s.cmd.ProcessState)
	case <-time.After(startTimeout):
		return fmt.Errorf("it is not ready after %v", startTimeout)
	}
	if s.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "kubeconfig")); err != nil {
		return err
	}
	s.config.QPS = -1 // no limit
	return nil
}

// Config returns the administrator's configuration. The caller may change it.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.config) }

// TestAPI returns the URL of the server's test API, with a slash at its end: a POST to reset below it
// drops all objects. See docs/test-api.md.
func (s *Server) TestAPI() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.testAPI
}

// Log returns the end of the server's log, and how the process has ended.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

// Stop ends the server, and deletes its files. It may be called more than once.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill() // there is nothing to save
	<-s.done
	_ = os.RemoveAll(s.dir)
}
