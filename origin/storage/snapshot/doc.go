// Package snapshot writes and reads snapshot files: all keys of a store at one revision, with their
// values, revisions and expiry times, but without history.
//
// # Format
//
//	"kubeweir snapshot 1\n"          the format's version is its last word
//	length, header                   JSON: Header
//	for each key:
//	  length (at least 1), key
//	  revision
//	  expiry                         milliseconds of Unix time, 0 for never
//	  length, value
//	0                                a key of length 0 ends the keys
//	SHA-256                          of all bytes before it; the file ends here
//
// Lengths and numbers are unsigned varints. Keys are in any order. A file that was cut off has no
// checksum, so that it is never mistaken for a complete one.
package snapshot
