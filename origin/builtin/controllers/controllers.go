// Package controllers runs kube-controller-manager's controllers in this process, from
// k8s.io/kubernetes/cmd/kube-controller-manager, unmodified: namespaces go away, owned objects are
// collected, Deployments get Pods.
package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// userAgent is the prefix of the controllers' user agent, and the field manager of their writes.
const userAgent = "kube-controller-manager"

// shutdownTimeout bounds how long Run waits for controllers that are in the middle of a request.
const shutdownTimeout = 5 * time.Second

// Options configure the controllers.
type Options struct {
	// Names are the controllers to run, as in kube-controller-manager's --controllers: "namespace",
	// "*" for all that it runs by default, "-job" for all but this one. Aliases are accepted, and names
	// without their suffix "-controller".
	Names []string
	// Config is the configuration of a client that may do everything.
	Config *rest.Config
	// RootCA are the PEM certificates that root-ca-certificate-publisher publishes.
	RootCA []byte
	// TokenKey signs the tokens of serviceaccount-token.
	TokenKey any
	// CACertFile and CAKeyFile are what csrsigning signs with, or empty: it reads files only.
	CACertFile, CAKeyFile string
	// Logger is required.
	Logger *slog.Logger
}

// Controllers are the chosen controllers. They run once.
type Controllers struct {
	opts   Options
	config *config.CompletedConfig
	client clientbuilder.ControllerClientBuilder
}

// New checks the names and returns the controllers. The error names the first one that is unknown or
// cannot run.
func New(opts Options) (*Controllers, error) {
	chosen, err := opts.resolve()
	if err != nil {
		return nil, err
	}
	o, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, fmt.Errorf("controllers: %w", err)
	}
	o.SecureServing.BindPort = 0 // no server of its own
	o.Generic.Controllers = chosen
	o.Generic.LeaderElection.LeaderElect = false
	o.CSRSigningController.ClusterSigningCertFile, o.CSRSigningController.ClusterSigningKeyFile = opts.CACertFile, opts.CAKeyFile
	own := rest.CopyConfig(opts.Config)
	own.UserAgent = userAgent
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("controllers: %w", err)
	}
	c := &config.Config{
		Client:                    client,
		Kubeconfig:                own,
		ControllerShutdownTimeout: shutdownTimeout,
		ComponentGlobalsRegistry:  o.ComponentGlobalsRegistry,
	}
	if err := o.ApplyTo(c, app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()); err != nil {
		return nil, fmt.Errorf("controllers: %w", err)
	}
	return &Controllers{opts, c.Complete(), builder{clientbuilder.SimpleControllerClientBuilder{ClientConfig: own}, opts.RootCA}}, nil
}

// ExcludeServiceAccounts reports whether the names exclude the controller that creates service accounts.
func (c *Controllers) ExcludeServiceAccounts() bool {
	return slices.Contains(c.config.ComponentConfig.Generic.Controllers, "-"+names.ServiceAccountController)
}

// resolve returns the names, replaced by kube-controller-manager's.
func (o *Options) resolve() ([]string, error) {
	if !slices.ContainsFunc(o.Names, func(name string) bool { return !strings.HasPrefix(name, "-") }) {
		return nil, fmt.Errorf("%s runs nothing: put * before it for all but these", strings.Join(o.Names, ","))
	}
	known, aliases := app.KnownControllers(), app.ControllerAliases()
	out := make([]string, 0, len(o.Names))
	for _, entry := range o.Names {
		name, excluded := strings.CutPrefix(entry, "-")
		canonical := name
		switch {
		case name == "*" && !excluded, slices.Contains(known, name):
		case slices.Contains(known, name+"-controller"):
			canonical = name + "-controller"
		case aliases[name] != "":
			canonical = aliases[name]
		default:
			return nil, fmt.Errorf("there is no controller %q; the controllers are %s", name, strings.Join(known, ", "))
		}
		if excluded {
			canonical = "-" + canonical
		} else if reason := o.unavailable(canonical); reason != "" {
			return nil, fmt.Errorf("%s cannot run: %s", canonical, reason)
		}
		out = append(out, canonical)
	}
	return out, nil
}

// unavailable returns why a controller cannot run in this process, or "".
func (o *Options) unavailable(name string) string {
	switch {
	case name == names.CertificateSigningRequestSigningController && o.CAKeyFile == "":
		return "it needs files with one CA certificate and its key, and there are none"
	case name == names.NodeIpamController:
		return "there are no address ranges to assign to nodes"
	}
	if descriptor := app.NewControllerDescriptors()[name]; descriptor != nil { // not for *
		for _, gate := range descriptor.GetRequiredFeatureGates() {
			if !utilfeature.DefaultFeatureGate.Enabled(gate) {
				return "the feature gate " + string(gate) + " is off"
			}
		}
	}
	return ""
}

// Run runs the controllers until ctx ends, and returns when they have ended. The API server must
// respond. After an error, they can only run again in a new process: kube-controller-manager has state
// that is global, for example the names of informers.
func (c *Controllers) Run(ctx context.Context) error {
	events := record.NewBroadcaster(record.WithContext(ctx))
	events.StartRecordingToSink(&corev1.EventSinkImpl{Interface: c.config.Client.CoreV1().Events("")})
	defer events.Shutdown()
	c.config.EventBroadcaster = events
	c.config.EventRecorder = events.NewRecorder(clientscheme.Scheme, v1.EventSource{Component: userAgent})

	shared, err := app.CreateControllerContext(ctx, c.config, c.client, c.client)
	if err != nil {
		return err
	}
	defer shared.InformerFactory.InformerName().Release()
	known := app.NewControllerDescriptors()
	tokens := known[names.ServiceAccountTokenController]
	delete(known, tokens.Name()) // it reads its key from a file
	built, err := app.BuildControllers(ctx, shared, known, nil, noChecks{})
	if err != nil {
		return err
	}
	if shared.IsControllerEnabled(tokens) {
		controller, err := c.newTokens(ctx, shared)
		if err != nil {
			return err
		}
		built = append(built, controller)
	}
	c.logMissing(shared, known, built)
	shared.InformerFactory.Start(ctx.Done())
	defer shared.InformerFactory.Shutdown()
	shared.ObjectOrMetadataInformerFactory.Start(ctx.Done())
	close(shared.InformersStarted)
	if !app.RunControllers(ctx, shared, built, app.ControllerStartJitter, shutdownTimeout) {
		return fmt.Errorf("controllers did not stop within %v", shutdownTimeout)
	}
	return nil
}

// logMissing logs which of the chosen controllers were not built: * includes some that cannot run.
func (c *Controllers) logMissing(shared app.ControllerContext, known map[string]*app.ControllerDescriptor, built []app.Controller) {
	var missing []string
	for name, descriptor := range known {
		if shared.IsControllerEnabled(descriptor) && !slices.ContainsFunc(built, func(b app.Controller) bool { return b.Name() == name }) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		c.opts.Logger.Info("controllers that cannot run here", "controllers", strings.Join(missing, ","))
	}
}

// tokenController fills Secrets of type kubernetes.io/service-account-token.
type tokenController struct {
	*serviceaccountcontroller.TokensController
	workers int
}

func (c *Controllers) newTokens(ctx context.Context, shared app.ControllerContext) (app.Controller, error) {
	client, err := c.client.Client("tokens-controller")
	if err != nil {
		return nil, err
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, c.opts.TokenKey)
	if err != nil {
		return nil, err
	}
	core := shared.InformerFactory.Core().V1()
	controller, err := serviceaccountcontroller.NewTokensController(klog.FromContext(ctx), core.ServiceAccounts(), core.Secrets(), client,
		serviceaccountcontroller.TokensControllerOptions{TokenGenerator: generator, RootCA: c.opts.RootCA})
	return tokenController{controller, int(shared.ComponentConfig.SAController.ConcurrentSATokenSyncs)}, err
}

// Name implements app.Controller.
func (tokenController) Name() string { return names.ServiceAccountTokenController }

// Run implements app.Controller.
func (t tokenController) Run(ctx context.Context) { t.TokensController.Run(ctx, t.workers) }

// noChecks ignores the controllers' health checks: all but one always pass.
type noChecks struct{}

// AddHealthChecker implements app.HealthCheckAdder.
func (noChecks) AddHealthChecker(...healthz.HealthChecker) {}

// A builder makes the controllers' clients.
type builder struct {
	clientbuilder.SimpleControllerClientBuilder
	rootCA []byte
}

// rootCAPublisher is the client that root-ca-certificate-publisher asks for its certificates.
const rootCAPublisher = "root-ca-cert-publisher"

// Config implements clientbuilder.ControllerClientBuilder.
func (b builder) Config(name string) (*rest.Config, error) {
	c, err := b.SimpleControllerClientBuilder.Config(name)
	if err == nil && name == rootCAPublisher {
		c.CAData = b.rootCA // not for a connection
	}
	return c, err
}
