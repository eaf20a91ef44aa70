package upstream

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ServerResource is what discovery says of one resource.
type ServerResource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Verbs are those of the resource itself; a resource that exists only for its subresources has
	// none.
	Verbs        []string
	Subresources []Subresource
}

// Supports reports whether the resource has the verb.
func (r *ServerResource) Supports(verb string) bool { return slices.Contains(r.Verbs, verb) }

// Subresource is what discovery says of a subresource.
type Subresource struct {
	Name string
	// Kind is what it responds with. Group and version are empty if they are those of the resource.
	Kind  schema.GroupVersionKind
	Verbs []string
}
