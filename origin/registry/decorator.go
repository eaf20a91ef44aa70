package registry

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
)

// deleteCollectionWorkers is kube-apiserver's default of --delete-collection-workers
// (apiserver, server/options/etcd.go).
const deleteCollectionWorkers = 1

// Decorator returns the function with which generic registries make their storage.Interface: a
// Store. The Store uses Codec, Transformer, Prefix and GroupResource of the resource's config. Its
// DestroyFunc does nothing.
func Decorator(opts Options) generic.StorageDecorator {
	return func(
		config *storagebackend.ConfigForResource,
		resourcePrefix string,
		_ func(obj runtime.Object) (string, error),
		newFunc, _ func() runtime.Object,
		_ storage.AttrFunc,
		_ storage.IndexerFuncs,
		_ *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		store, err := NewStore(StoreOptions{
			Options:        opts,
			Codec:          config.Codec,
			Transformer:    config.Transformer,
			Prefix:         config.Prefix,
			ResourcePrefix: resourcePrefix,
			GroupResource:  config.GroupResource,
			DeleteCorrupt:  utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion),
			NewFunc:        newFunc,
		})
		if err != nil {
			return nil, nil, err
		}
		return store, func() {}, nil
	}
}

// ConfigSource describes how a resource is stored: its codec and the part of its keys
// after the prefix ("pods", "apps/deployments" or with a "/" in front). example is an
// object of the type that the registry works with; its kind may decide the stored
// version. Resources that are one in the store (events of both groups) are the
// source's business: it answers with the same codec and prefix.
type ConfigSource func(resource schema.GroupResource, example runtime.Object) (config *storagebackend.ConfigForResource, resourcePrefix string, err error)

// NewRESTOptionsGetter returns a getter that takes the configuration from source and the storage
// from the decorator, otherwise with kube-apiserver's defaults: garbage collection on, one worker
// to delete a collection. Objects are not counted periodically, because the count is not used.
// transformers encrypt the objects of each resource; nil leaves the transformer of the configuration.
func NewRESTOptionsGetter(decorator generic.StorageDecorator, source ConfigSource, transformers value.ResourceTransformers) generic.RESTOptionsGetter {
	return restOptionsGetter{decorator: decorator, source: source, transformers: transformers}
}

type restOptionsGetter struct {
	decorator    generic.StorageDecorator
	source       ConfigSource
	transformers value.ResourceTransformers
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (g restOptionsGetter) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	config, prefix, err := g.source(resource, example)
	if err != nil {
		return generic.RESTOptions{}, fmt.Errorf("how %s is stored: %w", resource, err)
	}
	if g.transformers != nil {
		transformed := *config // the source may hand out the same one again
		transformed.Transformer = g.transformers.TransformerForResource(resource)
		config = &transformed
	}
	return generic.RESTOptions{
		StorageConfig:             config,
		Decorator:                 g.decorator,
		EnableGarbageCollection:   true,
		DeleteCollectionWorkers:   deleteCollectionWorkers,
		ResourcePrefix:            prefix,
		StorageObjectCountTracker: config.StorageObjectCountTracker,
	}, nil
}
