package object

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Namespaces is a set of namespaces: those whose objects are visible, or the visible Namespace
// objects themselves. It is immutable and safe for concurrent use.
type Namespaces struct {
	names sets.Set[string]
	// Keys are the key prefixes of the objects or, for Namespaces themselves, their keys, sorted.
	Keys []string
	// Themselves means that the set is of Namespace objects, not of the objects in them.
	Themselves bool
	id         string
}

// NewNamespaces returns the set of names, for the objects in them or for the Namespaces themselves.
func NewNamespaces(names []string, themselves bool) *Namespaces {
	n := &Namespaces{names: sets.New(names...), Themselves: themselves}
	for name := range n.names {
		if !themselves {
			name += "/"
		}
		n.Keys = append(n.Keys, name)
	}
	slices.Sort(n.Keys) // with the "/": "a-b/" comes before "a/"
	h := sha256.Sum256([]byte(strings.Join(append(slices.Clip(n.Keys), ""), "\x00")))
	n.id = base64.RawURLEncoding.EncodeToString(h[:16])
	return n
}

// Len returns the number of namespaces.
func (n *Namespaces) Len() int { return len(n.Keys) }

// Has reports whether the set contains a namespace.
func (n *Namespaces) Has(name string) bool { return n.names.Has(name) }

// ID identifies the set: two sets with the same ID have the same namespaces.
func (n *Namespaces) ID() string { return n.id }

// shows reports whether o is visible.
func (n *Namespaces) shows(o *Object) bool {
	if n.Themselves {
		return n.Has(o.Name)
	}
	return n.Has(o.Namespace)
}
