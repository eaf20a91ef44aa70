// Package source is the contract between the cache and the API server that fills it: a remote
// kube-apiserver, or the origin in this process.
//
// A Source lists and watches one Resource and returns the current resourceVersion of its store.
// Capabilities of only some servers are optional interfaces beside it, such as VersionLister (names
// and versions of all objects) or ImmediateSource (progress of the open watch). The package also
// classifies the errors of a source, so that all callers agree on which of them are worth another
// attempt, and bounds small calls by a timeout that a slow link does not exceed.
//
// Its only state is that of a Resource: whether its definition was retired, and the forms derived
// from it. Everything in it is safe for concurrent use.
//
// The packages of the cache call a source; proxy/upstream and the origin implement it. It imports
// form and form/table, by which a Resource is rendered.
package source
