package crd

import (
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/recognizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/kubeweir/kubeweir/origin/registry"
)

// definitionsGetter returns the storage options of definitions: JSON of v1beta1. JSON of v1 repeats
// the schema in every version, and may exceed the size limit of objects
// (CreateAPIExtensionsConfig).
func definitionsGetter(cfg Config) generic.RESTOptionsGetter {
	codec := apiextensionsserver.Codecs.LegacyCodec(v1beta1.SchemeGroupVersion, v1.SchemeGroupVersion)
	// Discovery tells a hash of the stored version.
	stored := runtime.NewMultiGroupVersioner(v1beta1.SchemeGroupVersion, schema.GroupKind{Group: v1beta1.GroupName})
	return registry.NewRESTOptionsGetter(registry.Decorator(cfg.Registry), source(cfg, codec, stored), cfg.Generic.ResourceTransformers)
}

// instancesGetter returns the storage options of custom resources. It stores them as JSON and also
// reads objects that another server has stored as CBOR (apiextensions-apiserver,
// pkg/cmd/server/options, NewCRDRESTOptionsGetter). The handler of custom resources wraps the codec
// with the conversion between versions.
func instancesGetter(cfg Config) generic.RESTOptionsGetter {
	binary := cbor.NewSerializer(unstructuredscheme.NewUnstructuredCreator(), unstructuredscheme.NewUnstructuredObjectTyper())
	codec := runtime.NewCodec(unstructured.UnstructuredJSONScheme,
		recognizer.NewDecoder(binary, unstructured.UnstructuredJSONScheme))
	return registry.NewRESTOptionsGetter(endingWatches(registry.Decorator(cfg.Registry)), source(cfg, codec, nil), cfg.Generic.ResourceTransformers)
}

func source(cfg Config, codec runtime.Codec, stored runtime.GroupVersioner) registry.ConfigSource {
	return func(resource schema.GroupResource, _ runtime.Object) (*storagebackend.ConfigForResource, string, error) {
		config := storagebackend.Config{Prefix: cfg.Prefix, Codec: codec, EncodeVersioner: stored, Transformer: identity.NewEncryptCheckTransformer()}
		return config.ForResource(resource), resource.Group + "/" + resource.Resource, nil
	}
}
