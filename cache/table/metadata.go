package table

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kjson "sigs.k8s.io/json"
)

// PartialMetadata returns the metadata of a custom resource's object, given as
// JSON, the way kube-apiserver gives it in a PartialObjectMetadata: read from an
// untyped object field by field, written in the order of ObjectMeta. What
// ObjectMeta does not know and what has the wrong type is left out. Built-in
// objects need none of this: their metadata is in that form already.
func PartialMetadata(raw []byte) ([]byte, error) {
	var object struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, fmt.Errorf("finding object metadata: %w", err)
	}
	untyped := unstructured.Unstructured{Object: map[string]any{}}
	if len(object.Metadata) > 0 {
		var metadata any
		if err := utiljson.Unmarshal(object.Metadata, &metadata); err != nil {
			return nil, fmt.Errorf("decoding object metadata: %w", err)
		}
		untyped.Object["metadata"] = metadata
	}
	partial := meta.AsPartialObjectMetadata(&untyped)
	data, err := json.Marshal(&partial.ObjectMeta)
	if err != nil {
		return nil, fmt.Errorf("encoding object metadata: %w", err)
	}
	return data, nil
}
