package checkpoint

import (
	"context"
	"errors"
)

// Storage keeps checkpoints: the objects of a collection at one version. A checkpoint has a name of
// letters, digits, dots and dashes. The methods are safe for concurrent use, except that a
// checkpoint has at most one Writer or Reader at a time.
type Storage interface {
	// Names lists the checkpoints.
	Names() ([]string, error)
	// Open returns a reader of a checkpoint. The error wraps fs.ErrNotExist if there is none; any
	// other error means that it is unusable.
	Open(name string) (Reader, error)
	// Create begins a checkpoint. Its first commit replaces an older one of that name.
	Create(ctx context.Context, name string, header []byte) (Writer, error)
	// Remove removes a checkpoint if it exists.
	Remove(name string) error
	// Hurry lifts the limit on the write rate.
	Hurry()
}

// Reader reads one checkpoint. It belongs to one goroutine.
type Reader interface {
	// Header returns what the checkpoint was created with.
	Header() []byte
	// Next returns the next block, and io.EOF at the end. After another error nothing more can be
	// read, but everything up to the last commit is valid.
	Next() (Block, error)
	// Append returns a writer that continues the checkpoint, nil if its end is not a commit. It may
	// be called after Next has returned io.EOF.
	Append() (Writer, error)
	Close() error
}

// Block is a part of a checkpoint. It is valid if a commit follows.
type Block interface {
	// Commit returns the note of a commit, nil for a block of objects.
	Commit() []byte
	// Each calls set and deleted for the objects in the block, in order. The bytes of an object are
	// valid during the call.
	Each(set func(object []byte) error, deleted func(key string) error) error
}

// Writer writes one checkpoint. It belongs to one goroutine. After an error it can only be closed.
type Writer interface {
	// Set adds an object, or replaces the one with its key. Delete removes the object with a key.
	Set(ctx context.Context, object []byte) error
	Delete(ctx context.Context, key string) error
	// Commit makes everything before it part of the checkpoint, and returns when it is on disk.
	Commit(ctx context.Context, note []byte) error
	Close() error
}

// ErrFull says that the checkpoints have reached their maximum size.
var ErrFull = errors.New("state directory is full, the limit is --state-max-bytes")
