package checkpoint

import (
	"context"
	"errors"
)

// Storage are what is kept of collections over restarts of the process: the objects of each
// at one version. An image is known by a name of letters, digits, dots and dashes. Methods
// are safe for concurrent use, unless there is a Writer or a Reader of the same name.
type Storage interface {
	// Names are the images that there are.
	Names() ([]string, error)
	// Open returns a reader of an image; the error is fs.ErrNotExist (wrapped) when there
	// is none, and anything else when it cannot be used.
	Open(name string) (Reader, error)
	// Create begins an image, which takes the place of the one of that name, if any, with
	// its first commit.
	Create(ctx context.Context, name string, header []byte) (Writer, error)
	// Remove removes an image if it exists.
	Remove(name string) error
	// Hurry lifts the limit on the rate of writing.
	Hurry()
}

// Reader reads one image. It belongs to one goroutine.
type Reader interface {
	// Header is what the image was created with.
	Header() []byte
	// Next returns the next block, with io.EOF at the end. After another error nothing
	// more can be read; what was committed before it is whole.
	Next() (Block, error)
	// Append returns a writer that goes on with the image, nil if its end is not a commit.
	// It may be called when Next has said io.EOF.
	Append() (Writer, error)
	Close() error
}

// Block is a piece of an image. What it says is true when a commit follows.
type Block interface {
	// Commit is what the writer gave to Commit; nil for a block of objects.
	Commit() []byte
	// Each calls set and deleted for the objects in the block, in order. The bytes of an
	// object are valid during the call.
	Each(set func(object []byte) error, deleted func(key string) error) error
}

// Writer writes one image. It belongs to one goroutine. After an error it can only be
// closed.
type Writer interface {
	// Set adds an object, or replaces the one of its key; Delete removes the one at key.
	Set(ctx context.Context, object []byte) error
	Delete(ctx context.Context, key string) error
	// Commit makes what came before part of the image, and returns when that is on disk.
	Commit(ctx context.Context, note []byte) error
	// Size is how many bytes the image has on disk.
	Size() int64
	Close() error
}

// ErrFull says that images have as many bytes as they may.
var ErrFull = errors.New("the state has as many bytes as --state-max-bytes allows")
