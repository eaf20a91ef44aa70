// Package cbor turns JSON of the Kubernetes API into CBOR and back, as
// k8s.io/apimachinery/pkg/runtime/serializer/cbor encodes and decodes the same objects
// (KEP-4222), without decoding them into Go values.
//
// # What differs from JSON
//
// Every item of a response begins with tag 55799 (SelfDescribed), which says that CBOR
// follows. Strings and the keys of maps are byte strings, for the encoder does not check
// that they are UTF-8. Integers stay integers. Every other number is a float of 16, 32
// or 64 bits, the fewest that hold its value. Bytes, base64 in JSON, are a byte string
// behind tag 22 (base64 is expected later), and a number of a Go type float64 is a float
// even if JSON writes it as an integer. JSON does not say where bytes and such numbers
// are: a Shape does, for the built-in types. It is derived from their Go types.
//
// kube-apiserver writes the members of maps in random order. Here they stay in the order
// in which they stand in JSON, in which kind and apiVersion come first: a list's item is
// what follows them.
//
// There are no Tables in CBOR: kube-apiserver refuses them (406).
//
// # What JSON does not tell
//
// An upstream that is asked for JSON says 1 for a custom resource's float 1.0, and
// nothing tells it from the integer. It becomes an integer, as it does where custom
// resources are stored as JSON. Bytes that are no UTF-8 in a string have become U+FFFD.
package cbor
