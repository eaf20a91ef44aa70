package object

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// CustomSchema returns the schema of a custom resource with the jsonPaths of its
// CRD version's selectableFields (".spec.color"). Labels are the paths without
// the leading dot, values as apiextensions-apiserver computes them
// (pkg/registry/customresource/strategy.go): fmt.Sprint of the value, "" when it
// is missing or null. A path that is not a plain chain of names is left out, so
// that CanonicalField sends requests for it upstream. For a cluster-scoped
// resource use CustomSchema(paths).ClusterScoped().
func CustomSchema(paths []string) *Schema {
	var specs []fieldSpec
	for _, path := range paths {
		label := strings.TrimPrefix(path, ".")
		if label == path || !plainPath(label) {
			continue
		}
		specs = append(specs, fieldSpec{label: label, json: dotted(label)})
	}
	return newSchema(specs, nil, false)
}

// plainPath reports whether label is names joined by dots, without any of
// JSONPath's brackets, quotes, wildcards or escapes.
func plainPath(label string) bool {
	for _, name := range strings.Split(label, ".") {
		if name == "" || name == "metadata" {
			return false
		}
		for _, c := range []byte(name) {
			switch {
			case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
			default:
				return false
			}
		}
	}
	return true
}

// valueText turns a JSON token that is no string into the text that a field
// selector compares: what fmt.Sprint prints of the value that the API server
// decodes from it. The token was validated by the scan.
func valueText(token []byte) ([]byte, error) {
	switch token[0] {
	case 'n':
		return nil, nil
	case 't', 'f':
		return token, nil
	case '{', '[':
		// No CRD may declare such a field selectable; an object from before the
		// CRD changed can still hold one.
		var v any
		if err := utiljson.Unmarshal(token, &v); err != nil {
			return nil, fmt.Errorf("selectable field: %w", err)
		}
		return []byte(fmt.Sprint(v)), nil
	}
	if plainInteger(token) {
		return token, nil
	}
	if i, err := strconv.ParseInt(string(token), 10, 64); err == nil {
		return strconv.AppendInt(nil, i, 10), nil // -0 reads 0
	}
	f, err := strconv.ParseFloat(string(token), 64)
	if err != nil {
		return nil, fmt.Errorf("selectable field: %w", err)
	}
	return []byte(fmt.Sprint(f)), nil
}

// plainInteger reports whether the number surely prints as it is written.
func plainInteger(token []byte) bool {
	return len(token) < 19 && !bytes.ContainsAny(token, ".eE") && token[0] != '-' ||
		len(token) == 1
}
