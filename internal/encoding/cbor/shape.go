package cbor

import "k8s.io/apimachinery/pkg/runtime/schema"

// Shape describes which parts of a type's JSON have another type in CBOR. The zero Shape has no such
// parts.
type Shape int16

// Untyped is the shape of custom resources, and of types whose JSON needs no hints.
const Untyped Shape = 0

// The shapes of values. Those of objects and maps are positive: indexes of shapes.
const (
	// bytesShape is a Go []byte: base64 in JSON.
	bytesShape Shape = -1 - iota
	// floatShape is a Go float: in JSON a number that need not have a fraction.
	floatShape
	// rawShape is JSON that the server passes on as a client wrote it. Keys may be repeated in it.
	rawShape
)

// ShapeOf returns the shape of a built-in type of objects.
func ShapeOf(gvk schema.GroupVersionKind) Shape {
	return roots(gvk.Group + "/" + gvk.Version + "/" + gvk.Kind)
}

// members are those members of an object or a map that have a shape.
type members []struct {
	name  string // anyKey: every member of a map
	shape Shape
}

const anyKey = "*"

// member returns the shape of an object's member. An array has the shape of its elements.
func (s Shape) member(key []byte) Shape {
	if s <= 0 {
		return Untyped
	}
	for _, m := range shapes[s] {
		if m.name == anyKey || m.name == string(key) {
			return m.shape
		}
	}
	return Untyped
}
