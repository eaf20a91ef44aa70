package groups

import (
	"bytes"
	_ "embed"
	"encoding/gob"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// structureFile is the structure of all built-in types for server-side apply. kube-apiserver
// derives it from its OpenAPI definitions at every start, which takes a tenth of a second and 20 MB
// of garbage. TestStructureFile derives it and compares; with -update it writes the file.
//
//go:embed structure.gob
var structureFile []byte

// A structure is what structureFile holds, sorted: the types, and which one a kind is.
type structure struct {
	Kinds []kind
	Types []smd.TypeDef
}

type kind struct {
	Kind schema.GroupVersionKind
	Type string
}

// A typeConverter gives server-side apply and the managers of fields the structure
// of built-in types. It reads structureFile at first use.
type typeConverter struct {
	parsers func() (parsers, error)
	// unknown answers for kinds that have no structure, in the library's words.
	unknown managedfields.TypeConverter
}

type parsers struct {
	kinds  map[schema.GroupVersionKind]string
	parser *typed.Parser
}

// newTypeConverter returns a typeConverter or, if there are other versions than the default ones, that of
// the library, which derives the structure as kube-apiserver does.
func newTypeConverter(infos []*genericapiserver.APIGroupInfo) (managedfields.TypeConverter, error) {
	var names []string
	usual, onlyUsual := DefaultResources(), true
	for _, info := range infos {
		for version := range info.VersionedResourcesStorageMap {
			gv := schema.GroupVersion{Group: info.PrioritizedVersions[0].Group, Version: version}
			onlyUsual = onlyUsual && usual.GroupVersionConfigs[gv]
			for kind := range info.Scheme.KnownTypes(gv) {
				object, err := info.Scheme.New(gv.WithKind(kind))
				if err != nil {
					return nil, err
				}
				names = append(names, util.GetCanonicalTypeName(object))
			}
		}
	}
	if onlyUsual {
		return newDefaultTypeConverter()
	}
	definitions, err := builder3.BuildOpenAPIDefinitionsForResources(OpenAPIV3Config(), names...)
	if err != nil {
		return nil, fmt.Errorf("structure of the built-in types: %w", err)
	}
	return managedfields.NewTypeConverter(definitions, false)
}

func newDefaultTypeConverter() (typeConverter, error) {
	unknown, err := managedfields.NewTypeConverter(map[string]*spec.Schema{}, false)
	if err != nil {
		return typeConverter{}, fmt.Errorf("structure of unknown types: %w", err)
	}
	return typeConverter{parsers: sync.OnceValues(readStructure), unknown: unknown}, nil
}

func readStructure() (parsers, error) {
	gob.Register(map[string]any{}) // of defaults; registering it again does nothing
	var s structure
	if err := gob.NewDecoder(bytes.NewReader(structureFile)).Decode(&s); err != nil {
		return parsers{}, fmt.Errorf("structure of the built-in types: %w", err)
	}
	p := parsers{make(map[schema.GroupVersionKind]string, len(s.Kinds)), &typed.Parser{Schema: smd.Schema{Types: s.Types}}}
	for _, k := range s.Kinds {
		p.kinds[k.Kind] = k.Type
	}
	return p, nil
}

func (c typeConverter) ObjectToTyped(o runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	p, err := c.parsers()
	if err != nil {
		return nil, err
	}
	name, ok := p.kinds[o.GetObjectKind().GroupVersionKind()]
	if !ok {
		return c.unknown.ObjectToTyped(o, opts...)
	}
	parser := p.parser.Type(name)
	if u, ok := o.(*unstructured.Unstructured); ok {
		return parser.FromUnstructured(u.UnstructuredContent(), opts...)
	}
	return parser.FromStructured(o, opts...)
}

func (c typeConverter) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	return c.unknown.TypedToObject(v)
}
