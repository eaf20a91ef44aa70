// Package state keeps images of collections in a folder: the objects' bytes at one version,
// and what else its caller wants to know of them, which it does not read. It knows nothing
// of where objects come from.
//
// # Files
//
// The file "kubeweir-state" says that the folder is one, in which format, and whether
// images are sealed. Every image has a file NAME.image:
//
//	preamble   magic, format, whether sealed, 16 random bytes: the file's identity
//	block 0    a header: the caller's
//	block 1…   objects: set (bytes) or deleted (key), in pieces of about 256 KiB
//	           commit: the caller's; what came since the last one counts from here on
//
// A record, NAME.record, is a preamble and a single block, which is written anew each time.
//
// A block is its length, a CRC-32C, its kind, and its content, which is compressed (S2) and
// then, with a key, sealed (AES-256-GCM). Checksum, key and associated data are those of
// one file, by its identity, and of one place in it: blocks of another file, left-overs of
// an older one, and blocks in another order are none.
//
// # Crashes
//
// A file only grows, and what follows its last commit is not read: so whatever a crash
// leaves of it is the whole image of some commit, or no image. An image is begun anew in
// another file that takes the place of the old one when it is on disk. A block that cannot
// be read ends the image before it.
//
// # Locks
//
// Dir.mu guards the count of bytes on disk. A Writer and a Reader belong to one goroutine;
// a Block is read by any number.
package state
