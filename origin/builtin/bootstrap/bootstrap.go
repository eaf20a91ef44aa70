// Package bootstrap writes what kube-apiserver writes into an empty store, and
// what it keeps true in one that is not: system namespaces, the RBAC policy,
// priority classes, flow schemas and priority levels, what extension API servers
// authenticate by, and the service default/kubernetes.
//
// One thing is done that kube-apiserver leaves to kube-controller-manager: cluster
// roles are aggregated (aggregate.go), so that admin, edit and view have rules from
// the first moment on. If a kube-controller-manager runs as well, both come to the
// same result. Default service accounts are not made: as with kube-apiserver alone,
// no pod can be created in a namespace before somebody makes one.
//
// Several servers may share one store: all of this is idempotent, and what another
// one changes meanwhile is read again.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Config is what to write, and how.
type Config struct {
	// Client is privileged.
	Client kubernetes.Interface
	// ClientCA and RequestHeaderCA, in PEM, and RequestHeaderAllowedNames are told to
	// extension API servers; what is empty is left out.
	ClientCA, RequestHeaderCA []byte
	RequestHeaderAllowedNames []string
	// Informers are used for what is there already. Run starts those it needs, if they
	// are not, until ctx ends.
	Informers informers.SharedInformerFactory
	// AdvertiseAddress is the endpoint of the service default/kubernetes. The API
	// permits no loopback addresses there: with one, the service has no endpoints.
	AdvertiseAddress netip.AddrPort
	// ServiceIP is the cluster IP of that service.
	ServiceIP netip.Addr
	// Logger, default slog.Default().
	Logger *slog.Logger
}

const (
	// concurrent is how many objects are written at a time. The store makes writes
	// durable together that come together.
	concurrent = 32
	// patience is how long writing one object is tried (pkg/registry/rbac/rest).
	patience = 30 * time.Second
	// firstRetry and lastRetry bound the time between two tries.
	firstRetry, lastRetry = 5 * time.Millisecond, time.Second
)

// A bootstrapper does the work of one Run.
type bootstrapper struct {
	Config
}

// Run returns when everything is written that clients rely on from the first
// request on. Afterwards it keeps system namespaces, flow schemas, the ConfigMap for
// extension API servers and the service default/kubernetes in place and aggregates
// cluster roles, until ctx ends; wait waits for that. After an error nothing goes
// on, and wait is nil.
func Run(ctx context.Context, cfg Config) (wait func(), err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	b := &bootstrapper{cfg}
	began := time.Now()
	if err := b.sync(ctx); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	if err := b.write(ctx); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	cfg.Logger.DebugContext(ctx, "bootstrap: written", "took", time.Since(began))
	aggregation, err := newAggregator(b.Client, b.Informers.Rbac().V1().ClusterRoles(), b.Logger)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() { aggregation.run(ctx) })
	running.Go(func() { b.keep(ctx) })
	return running.Wait, nil
}

// sync waits until it is known what is there.
func (b *bootstrapper) sync(ctx context.Context) error {
	rbac := b.Informers.Rbac().V1()
	needed := []cache.SharedIndexInformer{
		b.Informers.Core().V1().Namespaces().Informer(), b.Informers.Scheduling().V1().PriorityClasses().Informer(),
		rbac.ClusterRoles().Informer(), rbac.ClusterRoleBindings().Informer(), rbac.Roles().Informer(), rbac.RoleBindings().Informer(),
	}
	b.Informers.Core().V1().Services().Informer() // for later
	b.Informers.Start(ctx.Done())
	for _, informer := range needed {
		select {
		case <-informer.HasSyncedChecker().Done():
		case <-ctx.Done():
			return fmt.Errorf("reading what is there: %w", context.Cause(ctx))
		}
	}
	return nil
}

// write writes what is missing or different: namespaces and what is in none first,
// then what is in those namespaces.
func (b *bootstrapper) write(ctx context.Context) error {
	flow, err := b.flowcontrol(ctx)
	if err != nil {
		return err
	}
	for _, tasks := range [][]task{
		append(append(append(b.namespaces(), b.clusterPolicy()...), b.priorityClasses()...), flow...),
		append(b.namespacePolicy(), b.extensionAuthentication(), b.tokenTracking()),
	} {
		if err := perform(ctx, tasks); err != nil {
			return err
		}
	}
	return nil
}

// A task brings about one object. It may be done again after an error.
type task struct {
	name string
	do   func(ctx context.Context) error
}

// perform does tasks, several at a time, each until it succeeds or patience ends,
// and returns the errors of all that failed.
func perform(ctx context.Context, tasks []task) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(concurrent)
	failures := make([]error, len(tasks))
	for i, t := range tasks {
		group.Go(func() error {
			failures[i] = persist(ctx, t)
			return nil
		})
	}
	_ = group.Wait() // each task keeps its own error
	return errors.Join(failures...)
}

func persist(ctx context.Context, t task) error {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := t.do(ctx)
		if err == nil {
			return nil
		}
		if apierrors.IsInvalid(err) { // and would be so the next time
			return fmt.Errorf("%s: %w", t.name, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
}
