// Package bootstrap writes the objects that kube-apiserver writes into an empty store, and keeps
// them in place: system namespaces, the RBAC policy, priority classes, the configuration of
// extension API servers and the service default/kubernetes. Flow schemas and priority levels are
// written by a post-start hook of k8s.io/kubernetes (origin/builtin/groups).
//
// Run itself writes, in parallel, the objects that a client relies on from its first request:
// kube-apiserver's post-start hooks write one object after the other and begin after a second.
// The rest is left to the controllers of k8s.io/kubernetes.
//
// One controller is kube-controller-manager's: the one that aggregates cluster roles, without
// which admin, edit and view have no rules. Both may run it at the same time.
//
// Several servers may share one store: all of this is idempotent.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	schedulinghelper "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"
)

// Config is the input of Run.
type Config struct {
	// Client is privileged.
	Client kubernetes.Interface
	// Authentication is published to extension API servers.
	Authentication clusterauthenticationtrust.ClusterAuthenticationInfo
	// Informers are read to find out which objects exist. Run starts those that it needs.
	Informers informers.SharedInformerFactory
	// AdvertiseAddress is the endpoint of the service default/kubernetes. The API permits no
	// loopback addresses there: instead of one, the endpoint has an address of the machine, as with
	// kube-apiserver's --bind-address=127.0.0.1.
	AdvertiseAddress netip.AddrPort
	// NoEndpoints leaves the endpoints of that service to others.
	NoEndpoints bool
	// SharedStore: other servers may use the same store. Each has a lease then.
	SharedStore bool
	// ServiceIP is the cluster IP of that service.
	ServiceIP netip.Addr
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

const (
	// concurrent is how many objects are written at a time. The store syncs concurrent writes
	// together.
	concurrent = 32
	// writeTimeout bounds the attempts to write one object (pkg/registry/rbac/rest).
	writeTimeout = 30 * time.Second
)

// A bootstrapper does the work of one Run.
type bootstrapper struct {
	Config
}

var systemNamespaces = []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease, metav1.NamespaceDefault}

func (b *bootstrapper) namespaces() []task {
	var tasks []task
	for _, name := range systemNamespaces {
		tasks = append(tasks, ensurePresent(b.Informers.Core().V1().Namespaces().Lister(), b.Client.CoreV1().Namespaces(), "Namespace",
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	return tasks
}

func (b *bootstrapper) priorityClasses() []task {
	var tasks []task
	for _, class := range schedulinghelper.SystemPriorityClasses() {
		tasks = append(tasks, ensurePresent(b.Informers.Scheduling().V1().PriorityClasses().Lister(), b.Client.SchedulingV1().PriorityClasses(), "PriorityClass", class))
	}
	return tasks
}

// ensurePresent creates an object if it is missing, and does not change one that exists.
func ensurePresent[T metav1.Object](
	known interface{ Get(name string) (T, error) },
	client interface {
		Create(context.Context, T, metav1.CreateOptions) (T, error)
	},
	kind string, object T,
) task {
	return task{kind + " " + object.GetName(), func(ctx context.Context) error {
		if _, err := known.Get(object.GetName()); err == nil {
			return nil
		}
		_, err := client.Create(ctx, object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}}
}

// A task writes one object. It may be repeated after an error.
type task struct {
	name string
	do   func(ctx context.Context) error
}

// perform runs tasks in parallel, each until it succeeds or writeTimeout ends, and returns the
// errors of all that failed.
func perform(ctx context.Context, tasks []task) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(concurrent)
	failures := make([]error, len(tasks))
	for i, t := range tasks {
		group.Go(func() error {
			failures[i] = retry(ctx, t)
			return nil
		})
	}
	_ = group.Wait() // each task keeps its own error
	return errors.Join(failures...)
}

func retry(ctx context.Context, t task) error {
	var last error
	backoff := wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Steps: 8, Cap: time.Second}
	err := backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		last = t.do(ctx)
		// An invalid object stays invalid.
		return last == nil || apierrors.IsInvalid(last), nil
	})
	if last != nil {
		return fmt.Errorf("%s: %w", t.name, last)
	}
	return err
}
