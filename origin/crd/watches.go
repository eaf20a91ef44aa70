package crd

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// endingWatches makes storage whose watches end when it is destroyed. The handler of
// custom resources destroys a resource's storage when its definition is deleted, or is
// changed and other storage takes its place; in kube-apiserver the watch cache goes
// with it, and every watch it served. Without that, clients would go on reading a
// version of the resource that is gone.
func endingWatches(decorate generic.StorageDecorator) generic.StorageDecorator {
	return func(
		config *storagebackend.ConfigForResource,
		resourcePrefix string,
		keyFunc func(obj runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object,
		getAttrs storage.AttrFunc,
		triggers storage.IndexerFuncs,
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		inner, destroy, err := decorate(config, resourcePrefix, keyFunc, newFunc, newListFunc, getAttrs, triggers, indexers)
		if err != nil {
			return nil, nil, fmt.Errorf("storage of %s: %w", config.GroupResource, err)
		}
		alive, end := context.WithCancel(context.Background())
		return &endingStorage{Interface: inner, alive: alive}, func() { end(); destroy() }, nil
	}
}

// endingStorage is storage whose watches end with alive.
type endingStorage struct {
	storage.Interface
	alive context.Context
}

// Watch implements storage.Interface.
func (s *endingStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(s.alive, cancel)
	inner, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		detach()
		cancel()
		return nil, err
	}
	return &endingWatch{Interface: inner, release: func() { detach(); cancel() }}, nil
}

// endingWatch releases its storage when it is stopped.
type endingWatch struct {
	watch.Interface
	release func()
}

// Stop implements watch.Interface.
func (w *endingWatch) Stop() {
	w.release()
	w.Interface.Stop()
}
