// Package selfcheck compares a collection with the upstream at one version: keys and versions of
// all objects, and the bytes of some.
//
// The comment at the top of comparison.go shows why writes during a comparison are never reported
// as differences. A difference is reported only if a second comparison finds it unchanged. It
// contains keys and versions, never contents.
//
// The Manager runs comparisons, one at a time, and refills a collection that differs. The package
// imports reflector, freshness, store and source.
package selfcheck
