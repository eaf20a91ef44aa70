// Package state stores checkpoints of collections in a directory: the bytes of the objects at one
// version, and data of its caller that it does not interpret. It does not know where objects come
// from.
//
// # Files
//
// The file "kubeweir-state" identifies the directory, its format and whether checkpoints are
// encrypted. Each checkpoint is a file NAME.image:
//
//	preamble   magic, format, whether encrypted, 16 random bytes: the file's identity
//	block 0    a header of the caller
//	block 1…   objects: set (bytes) or deleted (key), in pieces of about 256 KiB
//	           commit: data of the caller; makes everything since the previous commit valid
//
// A record, NAME.record, is a preamble and a single block. It is rewritten as a whole.
//
// A block is its length, a CRC-32C, its kind and its content, which is compressed (S2) and, with a
// key, encrypted (AES-256-GCM). Checksum, key and associated data are bound to the file's identity
// and the block's position. Blocks of another file, leftovers of an older one and reordered blocks
// are therefore invalid.
//
// # Crashes
//
// Files only grow, and data after the last commit is ignored. So a crash leaves the complete
// checkpoint of some commit, or none. A new checkpoint is written to another file, which replaces
// the old one once it is on disk. An unreadable block ends the checkpoint before it.
//
// # Locks
//
// Dir.mu guards the byte counts. A Writer or Reader is used by one goroutine; a Block can be read
// by any number.
//
// Package internal/app opens a Dir for each cluster. Package state imports checkpoint, whose
// Storage it implements.
package state
