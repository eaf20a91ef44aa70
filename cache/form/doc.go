// Package form renders objects: as items of a list, as the response to a get, as watch events,
// bookmarks and ERROR events. It computes sizes, frames the items, compresses bodies in pieces and
// caches what is expensive to derive. It does not know who stores objects, which objects a request
// selects or who waits for what; that is the business of package cache and its other parts.
//
// # Forms
//
// A Form renders the objects of one resource in one representation (api.Representation), for one
// response or one watch. Five forms exist, each for every encoding it supports:
//
//	plain       the object's own bytes, as received from the upstream
//	dropped     the same without metadata.managedFields
//	metadata    a PartialObjectMetadata, taken from the object or derived from it
//	tables      a row of a Table, derived from the object, with relative times
//	transcoded  plain or metadata in an encoding in which objects are not stored: CBOR
//
// Two more wrap these: redacted renders redacted objects, and projected renders selected paths of
// whole objects (transcodedPart in CBOR).
//
// The bytes around an item in an encoding (head and tail of a list, the length of a protobuf
// message, the frame of an event) come from an encoding.Framing. Renderer.For is the only place that
// chooses a form.
//
// # Promises
//
//   - The bytes equal kube-apiserver's. The conformance suite compares them.
//   - Everything that can fail fails in prepare, before the first byte: a response that has begun
//     can no longer be forwarded instead.
//   - Sizes are exact or marked as estimates, so bodies have a Content-Length where possible.
//   - An object's own bytes are never copied: lists pass them on (chunks.refer), events refer to
//     them. No allocation per object of a list, nor per event and watch.
//   - Expensive results are computed once for all clients and cached within a budget: rows,
//     metadata and compressed pieces in derived, event frames with the event
//     (watchmux.Delivery.Frame).
//
// # Control flow
//
// A list or get: Renderer.For, then Renderer.List or Get -> Renderer.respond: Form.prepare, the ETag
// (subject.tag), sizes (body.measure: Form.itemSize), head and tail (body.frame: Form.frame), and
// body.answer, which writes the body in one buffer, in chunks (body.WriteTo: Form.item) or
// compressed (Renderer.compress).
//
// A watch: Renderer.Watch, then Watch.Begin with Added or Event, or one of Pieces, Bookmark, Error
// and End. Form.sharing says whether an event is assembled from shared pieces, built once and
// cached, or built for this watch only. A compressed watch begins with the items of a body whose
// layout is events.
//
// # Adding a form
//
//  1. Add it to api.Representation (api/version.go) and api.Negotiate (api/media.go).
//  2. Add a file with a type that embeds base and implements the rest of Form. plain.go is the
//     smallest example, table.go one that derives values.
//  3. Add a derivedKind for each kind of cached value.
//  4. Return the form from Renderer.For (for.go).
//  5. Include what distinguishes it in the ETag (etag.go).
//
// # Adding an encoding
//
//  1. Add a value to api.Encoding with its media type (api/version.go).
//  2. Implement encoding.Framing in a package below encoding.
//  3. Add it to framings (form.go).
//  4. If objects are not stored in it, derive them in prepare, as transcoded.go does.
package form
