package builtin

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	kjson "sigs.k8s.io/json"
)

// decodeInternal decodes the JSON of one object of kind gvk, applies the
// version's defaults and converts it to the internal version, as kube-apiserver
// does with what it reads from its store. The kind in the JSON itself is not
// looked at; items of lists have none. Package groups imports the types of all groups.
func decodeInternal(gvk schema.GroupVersionKind, raw []byte) (runtime.Object, error) {
	object, err := legacyscheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, object); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", gvk.Kind, err)
	}
	legacyscheme.Scheme.Default(object)
	// Unsafe means that the result shares memory with object, which is
	// dropped here.
	internal, err := legacyscheme.Scheme.UnsafeConvertToVersion(object, runtime.InternalGroupVersioner)
	if err != nil {
		return nil, fmt.Errorf("converting %s: %w", gvk.Kind, err)
	}
	return internal, nil
}
