// Package managedfields tells which fields the creator of an object manages, as the
// FieldsV1 of its first managedFields entry, for typed objects.
//
// k8s.io/apimachinery/pkg/util/managedfields finds that out in general: it compares the
// new object with an empty one and both with what other managers have, which was a fifth
// of what creating a small object cost. On creation there are no other managers, and of
// the empty object everything is known beforehand; so the answer takes one walk over the
// object, along a plan that is made once for each type. What a plan does not foresee is
// left to the library, whose answer is the same.
package managedfields
