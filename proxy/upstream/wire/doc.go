// Package wire splits the bodies of list and watch responses of a kube-apiserver
// into objects, without decoding the objects: JSON is scanned for its structure,
// protobuf is walked by its lengths. Bodies are read as they arrive and never
// held whole; every object gets its own allocation of exactly its size, because
// the caller keeps it.
//
// Nothing here is safe for concurrent use; what it returns is the caller's.
package wire

import (
	"errors"
	"fmt"

	"github.com/kubeweir/kubeweir/internal/api"
)

// ErrTooLarge says that one object, or one value beside the objects, is larger
// than the limit it was read with.
var ErrTooLarge = errors.New("object is larger than the limit")

// ListMeta is what a list says of itself, as it came.
type ListMeta struct {
	Kind, APIVersion          string
	ResourceVersion, Continue string
	// RemainingItemCount is nil when the list does not say it.
	RemainingItemCount *int64
}

// Event is one event of a watch.
type Event struct {
	Type api.EventType
	// Object is the complete object for JSON, the bare message for protobuf (a
	// Status for ERROR). It is the receiver's.
	Object []byte
}

// Events reads the events of one watch. Next returns io.EOF after the last whole
// event, io.ErrUnexpectedEOF when the stream ends inside one. An error is final.
type Events interface {
	Next() (Event, error)
}

func parseType(name []byte) (api.EventType, error) {
	t := api.ParseEventType(string(name))
	if t == 0 {
		return 0, fmt.Errorf("watch event has the unknown type %q", name)
	}
	return t, nil
}

func tooLarge(what string, limit int) error {
	return fmt.Errorf("%s: %w of %d bytes", what, ErrTooLarge, limit)
}
