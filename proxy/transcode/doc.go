// Package transcode forwards requests of clients that speak CBOR to a cluster that may not.
//
// A Transcoder sends a request as it is first. If the cluster rejects CBOR, before it has done
// anything, the same is sent in JSON, and the response, or each event of a watch, is encoded in CBOR
// for clients that accept nothing else.
//
// Package proxy forwards requests through it, but for those whose responses are redacted. It imports proxy/upstream for the credentials of
// a request.
package transcode
