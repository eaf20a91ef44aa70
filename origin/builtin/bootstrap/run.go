package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Run writes the objects that clients rely on and then starts the controllers, which run until
// ctx ends; wait waits for them. If Run fails, no controller runs and wait is nil.
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
	cfg.Logger.DebugContext(ctx, "bootstrap objects written", "took", time.Since(began))
	var running sync.WaitGroup
	for _, run := range b.controllers(ctx) {
		running.Go(func() { run(ctx) })
	}
	return running.Wait, nil
}

// sync waits for the informers that write reads.
func (b *bootstrapper) sync(ctx context.Context) error {
	rbac := b.Informers.Rbac().V1()
	needed := []cache.DoneChecker{
		b.Informers.Core().V1().Namespaces().Informer().HasSyncedChecker(),
		b.Informers.Scheduling().V1().PriorityClasses().Informer().HasSyncedChecker(),
		rbac.ClusterRoles().Informer().HasSyncedChecker(), rbac.ClusterRoleBindings().Informer().HasSyncedChecker(),
		rbac.Roles().Informer().HasSyncedChecker(), rbac.RoleBindings().Informer().HasSyncedChecker(),
	}
	b.Informers.Core().V1().Services().Informer() // for the controllers
	b.Informers.Start(ctx.Done())
	if !cache.WaitFor(ctx, "", needed...) {
		return fmt.Errorf("waiting for informers: %w", context.Cause(ctx))
	}
	return nil
}

// write writes the objects that are missing or different: those in no namespace first.
func (b *bootstrapper) write(ctx context.Context) error {
	for _, tasks := range [][]task{
		slices.Concat(b.namespaces(), b.clusterPolicy(), b.priorityClasses()),
		b.namespacePolicy(),
	} {
		if err := perform(ctx, tasks); err != nil {
			return err
		}
	}
	return nil
}
