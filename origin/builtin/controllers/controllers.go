// Package controllers runs kube-controller-manager's controllers in this process, from
// k8s.io/kubernetes/cmd/kube-controller-manager, unmodified: namespaces go away, owned objects are
// collected, Deployments get Pods.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
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
}

// Controllers are the chosen controllers. They run once.
type Controllers struct {
	config *config.CompletedConfig
	client clientbuilder.ControllerClientBuilder
}

// New checks the names and returns the controllers. The error names the first unknown one.
func New(opts Options) (*Controllers, error) {
	chosen, err := resolve(opts.Names)
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
	return &Controllers{c.Complete(), builder{clientbuilder.SimpleControllerClientBuilder{ClientConfig: own}, opts.RootCA}}, nil
}

// resolve replaces the names by kube-controller-manager's.
func resolve(given []string) ([]string, error) {
	if !slices.ContainsFunc(given, func(name string) bool { return !strings.HasPrefix(name, "-") }) {
		return nil, fmt.Errorf("%s runs nothing: put * before it for all but these", strings.Join(given, ","))
	}
	known, aliases := app.KnownControllers(), app.ControllerAliases()
	out := make([]string, 0, len(given))
	for _, name := range given {
		bare, without := strings.CutPrefix(name, "-")
		full := bare
		switch {
		case bare == "*" && !without, slices.Contains(known, bare):
		case slices.Contains(known, bare+"-controller"):
			full = bare + "-controller"
		case aliases[bare] != "":
			full = aliases[bare]
		default:
			return nil, fmt.Errorf("there is no controller %q; the controllers are %s", bare, strings.Join(known, ", "))
		}
		if full == names.ServiceAccountTokenController && !without {
			return nil, fmt.Errorf("%s is not available: request tokens with `kubectl create token`", full)
		}
		if without {
			full = "-" + full
		}
		out = append(out, full)
	}
	return out, nil
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
	built, err := app.BuildControllers(ctx, shared, app.NewControllerDescriptors(), nil, noChecks{})
	if err != nil {
		return err
	}
	shared.InformerFactory.Start(ctx.Done())
	defer shared.InformerFactory.Shutdown()
	shared.ObjectOrMetadataInformerFactory.Start(ctx.Done())
	close(shared.InformersStarted)
	if !app.RunControllers(ctx, shared, built, app.ControllerStartJitter, shutdownTimeout) {
		return errors.New("some have not ended in time")
	}
	return nil
}

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
