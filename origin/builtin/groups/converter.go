package groups

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// A typeConverter gives server-side apply the structure of built-in types. It is
// what genericapiserver builds before it installs a group, built at first use.
type typeConverter struct {
	build func() (managedfields.TypeConverter, error)
}

func newTypeConverter() managedfields.TypeConverter {
	return typeConverter{sync.OnceValues(buildTypeConverter)}
}

func (c typeConverter) ObjectToTyped(o runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	built, err := c.build()
	if err != nil {
		return nil, err
	}
	return built.ObjectToTyped(o, opts...)
}

func (c typeConverter) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	built, err := c.build()
	if err != nil {
		return nil, err
	}
	return built.TypedToObject(v)
}

func buildTypeConverter() (managedfields.TypeConverter, error) {
	specs, err := builder3.BuildOpenAPIDefinitionsForResources(OpenAPIV3Config(), storedTypes()...)
	if err != nil {
		return nil, fmt.Errorf("schemas of the built-in types: %w", err)
	}
	return newConverter(specs)
}

func newConverter(specs map[string]*spec.Schema) (managedfields.TypeConverter, error) {
	built, err := managedfields.NewTypeConverter(specs, false)
	if err != nil {
		return nil, fmt.Errorf("structure of the built-in types: %w", err)
	}
	return built, nil
}

// storedTypes are the names of all types of the served versions.
func storedTypes() []string {
	var names []string
	for gv := range DefaultResources().GroupVersionConfigs {
		for kind := range legacyscheme.Scheme.KnownTypes(gv) {
			if object, err := legacyscheme.Scheme.New(gv.WithKind(kind)); err == nil {
				names = append(names, util.GetCanonicalTypeName(object))
			}
		}
	}
	return names
}
