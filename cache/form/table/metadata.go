package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kjson "sigs.k8s.io/json"
)

// PartialMetadata returns the metadata of a custom resource's object, given as JSON, as
// kube-apiserver encodes it in a PartialObjectMetadata: read field by field from an unstructured
// object and written in the order of ObjectMeta. Fields that ObjectMeta does not have, or that have
// the wrong type, are omitted. The metadata of built-in objects already has that form.
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

// HideAnnotations returns the JSON of an ObjectMeta without the annotations in keys, and without
// the member annotations if none is left. The result may share memory with metadata.
func HideAnnotations(metadata []byte, keys []string) ([]byte, error) {
	if !slices.ContainsFunc(keys, func(key string) bool { return bytes.Contains(metadata, []byte(key)) }) {
		return metadata, nil
	}
	return editMembers(metadata, func(name string, value []byte) ([]byte, error) {
		if name != "annotations" {
			return value, nil
		}
		left, err := editMembers(value, func(key string, value []byte) ([]byte, error) {
			if slices.Contains(keys, key) {
				return nil, nil
			}
			return value, nil
		})
		if err != nil || string(left) == "{}" {
			return nil, err
		}
		return left, nil
	})
}

// editMembers rewrites a JSON object member by member. edit returns nil for members to drop.
// Unchanged members keep their bytes.
func editMembers(object []byte, edit func(name string, value []byte) ([]byte, error)) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return nil, fmt.Errorf("not a JSON object: %w", errors.Join(err, errMalformedMetadata))
	}
	out := append(make([]byte, 0, len(object)), '{')
	for decoder.More() {
		start := decoder.InputOffset()
		name, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("reading member: %w", err)
		}
		key := bytes.TrimLeft(object[start:decoder.InputOffset()], ", \t\r\n")
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, fmt.Errorf("reading member: %w", err)
		}
		if value, err = edit(name.(string), value); err != nil {
			return nil, err
		} else if value == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

var errMalformedMetadata = errors.New("malformed metadata")
