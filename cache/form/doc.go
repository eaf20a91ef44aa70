// Package form renders objects: as items of a list, as the response to a get, as watch events,
// bookmarks and ERROR events. It computes sizes, frames the items, compresses bodies in pieces and
// caches what is expensive to derive. It does not know who stores objects, which objects a request
// selects or who waits for what.
//
// A Form renders the objects of one resource in one representation (api.Representation), for one
// response or one watch. Renderer.For is the only place that chooses one:
//
//	plain       the object's own bytes, perhaps without metadata.managedFields
//	metadata    a PartialObjectMetadata, taken from the object or derived from it
//	tables      a row of a Table, derived from the object, with relative times
//	transcoded  plain or metadata in an encoding in which objects are not stored: CBOR
//	redacted    another form of redacted objects
//	pretty      another form with indented items
//
// The bytes around an item in an encoding come from an encoding.Framing.
//
// It promises:
//
//   - The bytes equal kube-apiserver's. The conformance suite compares them.
//   - What can fail fails in prepare, before the first byte: a response that has begun can no longer
//     be forwarded instead.
//   - Sizes are exact or marked as estimates, so bodies have a Content-Length where possible.
//   - An object's own bytes are never copied, and nothing is allocated per object of a list, nor per
//     event and watch.
//   - Expensive results are computed once for all clients and cached within a budget.
//
// Packages read and watch call it. A list is Renderer.List: prepare, the ETag, sizes, head and
// tail, and body.answer, which writes the body in one buffer, in chunks or compressed. A get is a
// list of one object, which is written alone. A watch is Renderer.Watch, then Begin with Added or
// Event, or one of Pieces, Bookmark, Error and End. To add a form, see plain.go, the smallest one,
// and table.go, which derives values; to add an encoding, implement encoding.Framing and add it to
// framings.
//
// It may import the packages below it (table, chunks, derived, pieces) and watchmux.
package form
