// Package cbor transcodes JSON of the Kubernetes API to CBOR, as
// k8s.io/apimachinery/pkg/runtime/serializer/cbor encodes the same objects (KEP-4222), without
// decoding them into Go values.
//
// # Differences to JSON
//
// Every item of a response begins with tag 55799 (SelfDescribed), which says that CBOR follows.
// Strings and the keys of maps are byte strings, because the encoder does not check that they are
// UTF-8. Integers stay integers. Every other number is a float of 16, 32 or 64 bits, the fewest
// that hold its value. Bytes, which are base64 in JSON, are a byte string after tag 22 (base64 is
// expected later). A number of the Go type float64 is a float even if JSON writes it as an integer.
// JSON does not tell where bytes and such numbers are. For built-in types a Shape does, which is
// derived from their Go types.
//
// kube-apiserver writes the members of maps in random order. Here they keep their order in JSON, in
// which kind and apiVersion come first: a list's item consists of the members that follow them.
//
// CBOR has no Tables: kube-apiserver rejects them (406).
//
// # Information that JSON loses
//
// The JSON of an upstream has 1 for a custom resource's float 1.0, which cannot be distinguished
// from the integer. It becomes an integer, as it does where custom resources are stored as JSON.
// Bytes of a string that are not UTF-8 have become U+FFFD.
package cbor
