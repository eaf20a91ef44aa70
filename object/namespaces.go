package object

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
)

// Namespaces is a set of namespaces: those of which somebody may see the objects, or the Namespaces themselves. It is
// immutable and safe for concurrent use.
type Namespaces struct {
	names map[string]struct{}
	// keys are what the keys of their objects begin with, or, of the Namespaces themselves, those keys; in order.
	keys       []string
	themselves bool
	id         string
}

// NewNamespaces makes the set of names for the objects in the namespaces, or for the Namespaces themselves.
func NewNamespaces(names []string, themselves bool) *Namespaces {
	n := &Namespaces{names: make(map[string]struct{}, len(names)), keys: make([]string, 0, len(names)), themselves: themselves}
	for _, name := range names {
		if _, again := n.names[name]; again {
			continue
		}
		n.names[name] = struct{}{}
		if !themselves {
			name += "/"
		}
		n.keys = append(n.keys, name)
	}
	slices.Sort(n.keys) // with the "/": "a-b/" comes before "a/"
	h := sha256.New()
	for _, key := range n.keys {
		h.Write([]byte(key))
		h.Write([]byte{0})
	}
	n.id = base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
	return n
}

// Len is the number of namespaces.
func (n *Namespaces) Len() int { return len(n.keys) }

// Has reports whether a namespace is among them.
func (n *Namespaces) Has(name string) bool {
	_, ok := n.names[name]
	return ok
}

// ID names the set: two with the same ID have the same namespaces.
func (n *Namespaces) ID() string { return n.id }

// Themselves reports whether it is the Namespaces that are seen, and not what is in them.
func (n *Namespaces) Themselves() bool { return n.themselves }

// Keys are, in their order, what the keys of the objects in the namespaces begin with; of the Namespaces themselves they
// are the whole keys. They must not be changed.
func (n *Namespaces) Keys() []string { return n.keys }

// shows reports whether o is seen.
func (n *Namespaces) shows(o *Object) bool {
	name := o.Namespace
	if n.themselves {
		name = o.Name
	}
	_, ok := n.names[name]
	return ok
}
