// Package chaintest starts custom resources and the aggregator without the built-in
// groups between them, for tests that need no more. It does not import
// k8s.io/kubernetes, and links and starts in little time.
package chaintest

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	extensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"

	"github.com/kubeweir/kubeweir/internal/inprocess"
	"github.com/kubeweir/kubeweir/origin/aggregator"
	"github.com/kubeweir/kubeweir/origin/crd"
	"github.com/kubeweir/kubeweir/origin/registry"
	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
)

// Options of a Chain.
type Options struct {
	// Engine holds the objects; Start does not close it. Default: one in memory, which
	// ends with the test.
	Engine storage.Engine
	// Services finds what webhooks and APIServices name. Default: nothing is found.
	Services func(namespace, name string, port int32) (*url.URL, error)
	// Objects are services and endpoint slices that exist.
	Objects []runtime.Object
}

// Chain is a running server. Everyone is system:admin in system:masters.
type Chain struct {
	Handler http.Handler
	// Config is for clients of the Handler, in JSON.
	Config *rest.Config
	// Engine is the engine of the options.
	Engine storage.Engine
	// Started is how long it took to serve.
	Started time.Duration
}

type resolver func(namespace, name string, port int32) (*url.URL, error)

func (r resolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return r(namespace, name, port)
}

// Memory is an engine that ends with the test.
func Memory(t testing.TB) storage.Engine {
	t.Helper()
	engine, err := embedded.Open(embedded.Options{Dir: "data", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return engine
}

// Start runs a chain until the test ends.
func Start(t testing.TB, opts Options) *Chain {
	t.Helper()
	if opts.Services == nil {
		opts.Services = func(_, name string, _ int32) (*url.URL, error) {
			return nil, &url.Error{Op: "resolve", URL: name, Err: io.EOF}
		}
	}
	if opts.Engine == nil {
		opts.Engine = Memory(t)
	}
	began := time.Now()
	logger := slog.New(slog.DiscardHandler)
	var handler http.Handler
	wire := inprocess.New(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler.ServeHTTP(w, req)
	}), logger)
	loopback := &rest.Config{Host: "https://chain.test", Transport: wire, QPS: -1}

	generic := genericConfig(loopback)
	services := resolver(opts.Services)
	kube := informers.NewSharedInformerFactory(fake.NewClientset(opts.Objects...), 0)
	shared := registry.Options{Engine: opts.Engine, Progress: &registry.Progress{}}

	custom, err := crd.New(crd.Config{
		Generic: *generic, Informers: kube, Registry: shared, Prefix: "/registry",
		Delegate:            genericapiserver.NewEmptyDelegate(),
		ServiceResolver:     services,
		AuthResolverWrapper: func(inner webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver { return inner },
		Logger:              logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	between := *generic
	between.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	completed := between.Complete(kube)
	builtin, err := completed.New("builtin", custom.Generic)
	if err != nil {
		t.Fatal(err)
	}
	outermost, err := aggregator.New(aggregator.Config{
		Generic: *generic, Informers: kube, Registry: shared, Prefix: "/registry",
		Delegate: builtin, CRDs: custom.CRDs, ServiceResolver: services, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := outermost.Prepare(); err != nil {
		t.Fatal(err)
	}
	handler = outermost.Generic.Handler

	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() {
		stop()
		outermost.Generic.Destroy()
	})
	if err := custom.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	if err := outermost.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	outermost.Generic.RunPostStartHooks(ctx)
	waitReady(t, loopback)
	return &Chain{Handler: handler, Config: loopback, Engine: opts.Engine, Started: time.Since(began)}
}

func genericConfig(loopback *rest.Config) *genericapiserver.Config {
	c := genericapiserver.NewConfig(extensionsserver.Codecs)
	c.EffectiveVersion = basecompatibility.NewEffectiveVersionFromString("1.37", "1.34", "1.34")
	c.ExternalAddress = "chain.test:443"
	c.LoopbackClientConfig = loopback
	c.SkipOpenAPIInstallation = true
	c.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	c.LongRunningFunc = filters.BasicLongRunningRequestCheck(sets.NewString("watch", "proxy"), sets.NewString("proxy"))
	admin := &user.DefaultInfo{Name: "system:admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	c.Authentication.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: admin}, true, nil
	})
	c.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	c.AdmissionControl = admission.NewChainHandler()
	return c
}

// waitReady returns when /readyz does not fail any more.
func waitReady(t testing.TB, config *rest.Config) {
	t.Helper()
	client := &http.Client{Transport: config.Transport, Timeout: 30 * time.Second}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		response, err := client.Get(config.Host + "/readyz?verbose")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready: %s", body)
		}
	}
}

// Timeout is how long anything in these tests may take.
const Timeout = 20 * time.Second
