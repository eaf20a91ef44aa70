// Package console serves the operators' console: web pages, and the JSON documents that they and
// `kubeweir top` show (docs/console.md). It reads counters and state that the other parts of the
// program keep anyway, when a client requests a document. On its own it only records a few totals
// every ten seconds, for charts. It changes something only if actions are enabled.
//
// The package promises:
//
//   - A document is built and encoded at most once every half second. Concurrent clients share the
//     result, so many clients cost as much as one.
//   - Memory is bounded: by the number of documents, streams and samples that it keeps.
//   - Without a token file, only programs and browsers on this machine may use it. No request is
//     authorized by something that a browser sends by itself, such as a cookie.
//   - No document contains contents of objects, credentials or keys.
//
// Requests enter in console.go. The topics table names a build function for each document; the
// functions are methods of builder, one file for each document, and the types of the documents are
// in documents.go.
//
// Only serve and cmd import this package. It may import cache, proxy and packages below them.
package console
