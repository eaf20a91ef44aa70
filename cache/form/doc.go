// Package form is the only code that knows how the bytes of one representation look: of
// an object as the item of a list, alone, in the event of a watch, and of bookmarks and
// the ERROR event; how long they are, what stands around them, how they are compressed
// in pieces, and what of them is worth keeping. It knows nothing of who keeps objects,
// which of them a request selects, or who waits for what: that is package cache.
//
// # What a form is
//
// A Form says how the objects of one resource look in one representation
// (api.Representation), in one response or one watch. There are five, each for all
// encodings in which it is given:
//
//	plain       the object's own bytes, as the upstream sent them
//	dropped     the same without metadata.managedFields: what is before them and behind
//	metadata    a PartialObjectMetadata: the metadata as it stands in the object, or
//	            derived from it where upstream has it otherwise
//	tables      a row of a Table, derived from the object, with its ages
//	transcoded  the first two in an encoding in which nothing is kept, CBOR
//
// and two that are made of them: redacted, any of these of redacted objects, and projected,
// some paths of whole objects (in CBOR transcodedPart).
//
// What stands around them in an encoding (the head and tail of a list, the length before
// a protobuf message, the frame of an event) is an encoding.Framing; forms and
// encodings know nothing of each other's inside. Renderer.For is the one
// place that chooses a form, and says whether there is one.
//
// # What it promises
//
//   - Its bytes are kube-apiserver's. The conformance suite compares them with a real one.
//   - What can fail fails in prepare, before the first byte: a response that has begun
//     cannot become a forwarded one.
//   - Sizes are exact or say that they are not, so that a body has a Content-Length where
//     it can have one.
//   - An object's own bytes are never copied to where they are encrypted: a list hands
//     them on (chunks.refer), an event refers to them. Nothing is allocated for each
//     object of a list, nor for each event and watch.
//   - What is expensive is made once for all who ask, and kept within a budget: rows,
//     derived metadata and compressed pieces in derived, frames that are not the
//     object's own bytes with the event (watchmux.Delivery.Frame).
//
// # The ways through it
//
// A list or a get: Renderer.For, then Renderer.List or Get -> Renderer.respond:
// Form.prepare, the ETag (subject.tag), sizes (body.measure: Form.itemSize), what stands
// around (body.frame: Form.frame), and body.answer, which takes a body at once, in chunks
// (body.WriteTo: Form.item) or compressed (Renderer.compress). items puts objects, form
// and layout together.
//
// A watch: Renderer.Watch, then for what is due Watch.Begin and Added or Event; or
// Pieces, Bookmark, Error, End. Form.sharing says whether an event is put together from
// shared pieces, made once and kept, or made for this watch. A compressed watch begins
// with the items of a body whose layout is events.
//
// # How to add a form
//
//  1. api.Representation says that a client asked for it (api/version.go), and
//     api.Negotiate when (api/media.go).
//  2. A file of its own has a type that embeds base, the methods of Form that base has
//     not, and what it derives (table.go is the example of one that does; plain.go, of
//     less than a hundred lines, of one that does not).
//  3. What it keeps in derived is a derivedKind with a name for the metrics (derived.go).
//  4. Renderer.For gives it to whom can have it (form.go).
//  5. The tag ends in what tells it from others (etag.go).
//
// That is one new file of 90 to 290 lines, as it derives nothing or much, and some ten
// lines in five others.
//
// # How to add an encoding
//
//  1. api.Encoding has a value for it, with its media type (api/version.go).
//  2. A folder below encoding has a type with the methods of encoding.Framing.
//  3. framings has a row for it (form.go).
//  4. Where objects are not kept in it, what is derived from them instead is a
//     derivedKind, made in prepare, and For says from what it can be made.
//
// That is two lines here, and what of the fourth step is needed: for CBOR the 170 lines of
// transcoded.go.
package form
