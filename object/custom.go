package object

import (
	"regexp"
	"slices"
	"strings"
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
		specs = append(specs, fieldSpec{label: label, path: dotted(label)})
	}
	return newSchema(specs, nil, false)
}

var pathOfNames = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// plainPath reports whether label is names joined by dots, without any of JSONPath's brackets,
// quotes, wildcards or escapes.
func plainPath(label string) bool {
	return pathOfNames.MatchString(label) && !slices.Contains(dotted(label), "metadata")
}
