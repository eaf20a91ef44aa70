package groups

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/kubernetes/pkg/kubeapiserver"

	"github.com/kubeweir/kubeweir/origin/registry"
)

// NewStorageFactory returns the factory for the keys and encodings of objects. They are
// kube-apiserver's, so that each can read the other's data. prefix begins every key.
func NewStorageFactory(c *genericapiserver.Config, prefix string) (serverstorage.StorageFactory, error) {
	backend := storagebackend.NewDefaultConfig(prefix, nil)
	backend.StorageObjectCountTracker = c.StorageObjectCountTracker
	config := kubeapiserver.NewStorageFactoryConfigEffectiveVersion(c.EffectiveVersion)
	config.APIResourceConfig = c.MergedResourceConfig
	factory, err := config.Complete(&serveroptions.EtcdOptions{
		StorageConfig:           *backend,
		DefaultStorageMediaType: runtime.ContentTypeProtobuf,
	}).New()
	if err != nil {
		return nil, fmt.Errorf("storage encodings of the built-in groups: %w", err)
	}
	return factory, nil
}

// NewRESTOptions returns the storage options of the built-in groups: keys and encodings from the
// factory, storage from decorator, encryption at rest from transformers, which may be nil.
func NewRESTOptions(factory serverstorage.StorageFactory, decorator generic.StorageDecorator, transformers value.ResourceTransformers) generic.RESTOptionsGetter {
	return registry.NewRESTOptionsGetter(decorator, func(resource schema.GroupResource, example runtime.Object) (*storagebackend.ConfigForResource, string, error) {
		config, err := factory.NewConfig(resource, example)
		return config, factory.ResourcePrefix(resource), err
	}, transformers)
}
