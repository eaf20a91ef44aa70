// Package origintest starts a Kubernetes API for a test, in the test's own process:
//
//	func TestController(t *testing.T) {
//		api := origintest.Start(t)
//		client := kubernetes.NewForConfigOrDie(api.Config())
//		...
//	}
//
// It is what `kubeweir standalone` serves, the cache in front of the store included,
// with all built-in types, custom resources, admission, RBAC and watches, but nothing
// of it outlives the test: objects and keys are in memory. There is nothing to be
// installed, and any number of them may run at a time.
//
// As with envtest of controller-runtime there are no controllers: a Deployment has no
// Pods, a namespace that is deleted stays Terminating. Pods need no service account
// (see Options.ServiceAccounts).
package origintest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app"
	"github.com/kubeweir/kubeweir/origin/pki"
)

// Options determine how an API differs from the usual one. The zero value is a good one.
type Options struct {
	// ServiceAccounts turns the admission plugin ServiceAccount on: a Pod's service
	// account must exist, and its token is mounted. Every namespace has one named
	// default then.
	ServiceAccounts bool
	// EnableAdmission and DisableAdmission name admission plugins that are on, or off,
	// against the default.
	EnableAdmission, DisableAdmission []string
	// ServiceClusterIPRange is the CIDR of cluster IPs. Default: 10.0.0.0/24.
	ServiceClusterIPRange string
	// Log is the least level that is written to the test's output. Default: errors.
	Log slog.Leveler
}

// API is a running API. Its methods are safe for concurrent use.
type API struct {
	t      testing.TB
	server *app.Standalone
}

// startTime bounds the start, which takes a fraction of a second.
const startTime = time.Minute

// Start starts an API that ends with the test.
func Start(t testing.TB) *API {
	t.Helper()
	return StartWith(t, Options{})
}

// StartWith is Start with options.
func StartWith(t testing.TB, o Options) *API {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.LevelError
	}
	quietLibraries()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: o.Log}))
	s, err := start(t.Context(), o, log)
	if err != nil {
		t.Fatalf("origintest: %v", err)
	}
	t.Cleanup(func() { stop(s) })
	return &API{t: t, server: s}
}

func start(ctx context.Context, o Options, log *slog.Logger) (*app.Standalone, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	s, err := app.NewStandalone(ctx, configuration(o), app.StandaloneOptions{NoDataDir: true, UserAgent: "kubeweir/test", Logger: log})
	if err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// stop ends the connections, then what serves them.
func stop(s *app.Standalone) {
	s.Cut()
	s.Close()
}

// quietLibraries keeps what is information to them from the output of tests.
var quietLibraries = sync.OnceFunc(func() {
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
})

func configuration(o Options) *config.Standalone {
	c := config.DefaultStandalone()
	c.Listen, c.AdminListen = "127.0.0.1:0", ""
	c.Shutdown.Drain = 0
	c.Admission = config.Admission{EnablePlugins: o.EnableAdmission, DisablePlugins: slices.Clone(o.DisableAdmission)}
	if !o.ServiceAccounts {
		c.Admission.DisablePlugins = append(c.Admission.DisablePlugins, "ServiceAccount")
	}
	if o.ServiceClusterIPRange != "" {
		c.Services.ClusterIPRange = o.ServiceClusterIPRange
	}
	return c
}

// Config is for clients who may do everything. There is no client-side rate limit.
// The caller may change it.
func (a *API) Config() *rest.Config { return unlimited(a.server.RESTConfig()) }

// ConfigFor is for clients who are a user, in groups, known by a certificate. They may
// do what RBAC says.
func (a *API) ConfigFor(user string, groups ...string) *rest.Config {
	a.t.Helper()
	return unlimited(a.server.Material().RESTConfig(a.URL(), a.issue(user, groups)))
}

func (a *API) issue(user string, groups []string) *pki.KeyPair {
	a.t.Helper()
	pair, err := a.server.Material().IssueClient(user, groups...)
	if err != nil {
		a.t.Fatalf("origintest: a certificate for %q: %v", user, err)
	}
	return pair
}

func unlimited(c *rest.Config) *rest.Config {
	c.QPS = -1
	return c
}

// URL is the address, https://127.0.0.1:PORT.
func (a *API) URL() string { return a.server.URL() }

// Kubeconfig writes a kubeconfig of Config to a folder that ends with the test, for
// kubectl and other programs, and returns its path.
func (a *API) Kubeconfig() string {
	a.t.Helper()
	path := filepath.Join(a.t.TempDir(), "kubeconfig")
	if err := a.server.Material().WriteKubeconfig(path, a.URL()); err != nil {
		a.t.Fatalf("origintest: %v", fmt.Errorf("kubeconfig: %w", err))
	}
	return path
}
