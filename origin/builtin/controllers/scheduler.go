package controllers

import (
	"context"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
)

// schedulerAgent is the scheduler's user agent, and the field manager of its writes.
const schedulerAgent = "kube-scheduler"

// RunScheduler runs kube-scheduler with its default profile until ctx ends. config must be the
// configuration of a client that may do everything. The API server must respond.
func RunScheduler(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.UserAgent = schedulerAgent
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	name, err := cache.NewInformerName(schedulerAgent)
	if err != nil {
		return err
	}
	defer name.Release()
	broadcaster := events.NewEventBroadcasterAdapterWithContext(ctx, client)
	defer broadcaster.Shutdown()
	builtin := scheduler.NewInformerFactory(client, 0, name)
	custom := dynamicinformer.NewFilteredDynamicSharedInformerFactory(objects, 0, "", nil)
	s, err := scheduler.New(ctx, client, builtin, custom, broadcaster.NewRecorder, scheduler.WithKubeConfig(config))
	if err != nil {
		return err
	}
	broadcaster.StartRecordingToSink(ctx.Done())
	builtin.Start(ctx.Done())
	custom.Start(ctx.Done())
	defer builtin.Shutdown()
	defer custom.Shutdown()
	builtin.WaitForCacheSync(ctx.Done())
	custom.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		return err
	}
	s.Run(ctx)
	return nil
}
