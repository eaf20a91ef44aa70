package object

import "strings"

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
		specs = append(specs, fieldSpec{label: label, path: dotted(label)})
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
