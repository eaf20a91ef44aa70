// Package encoding is what the encodings of Kubernetes objects have in common. Each
// package below it knows how objects, lists, watch events and bookmarks look in one
// encoding, and is the only one that knows. They deal in bytes and positions and never
// decode an object; what an object is, is package object's.
//
// Bodies of lists and watches are read as they arrive and never held whole; every
// object gets its own allocation of exactly its size, because the caller keeps it.
package encoding

import (
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Codec reads one encoding in which a collection can be kept. It is safe for
// concurrent use.
type Codec interface {
	// Scan looks through s.Raw, which must be one complete object, and fills in what
	// it finds. Of a member that is repeated the last counts.
	Scan(s *Scan) error
	// Stamp returns a copy of an object that was scanned with another resourceVersion.
	Stamp(o Encoded, rv uint64) (Encoded, error)

	// ReadList reads a list and calls visit for each item, in order and in the form
	// that watches have; visit may keep it. An error of visit is returned as it is,
	// and ends the reading.
	ReadList(r io.Reader, opts ReadOptions, visit func(item []byte) error) (ListMeta, error)
	// NewEvents reads a watch, no object of which may have more than limit bytes.
	NewEvents(r io.Reader, limit int) Events

	// ParseBookmark reads the object of a BOOKMARK event.
	ParseBookmark(object []byte) (Bookmark, error)
	// LearnBookmark returns a template to render bookmarks like the one given, which
	// it keeps.
	LearnBookmark(object []byte) (BookmarkTemplate, error)
	// NewBookmark returns a template that has the type and the metadata only. sorted
	// says that keys are sorted, as those of custom resources are.
	NewBookmark(apiVersion, kind string, sorted bool) BookmarkTemplate

	// AppendMetadataHead appends what comes before n bytes of metadata in an object
	// because they are n, and MetadataHeadSize is its length.
	AppendMetadataHead(dst []byte, n int) []byte
	MetadataHeadSize(n int) int

	// ParseStatus reads the object of an ERROR event.
	ParseStatus(object []byte) (*metav1.Status, error)
}

// The type of objects reduced to their metadata, and of their lists.
const (
	PartialAPIVersion = "meta.k8s.io/v1"
	PartialKind       = "PartialObjectMetadata"
	PartialListKind   = "PartialObjectMetadataList"
)

// Encoded is the bytes of one object as a watch has them: in JSON with kind and
// apiVersion and without a newline, in protobuf the bare message.
type Encoded struct {
	Raw []byte
	// MetaStart and MetaEnd delimit the value of metadata in Raw: in JSON the object
	// with its braces, in protobuf the bytes of the ObjectMeta.
	MetaStart, MetaEnd int32
	// ManagedStart and ManagedEnd delimit what an object without its managedFields has
	// nothing of: in JSON the member with the comma that goes with it, in protobuf all
	// entries. Both are 0 where there are none, or where they are not in one place, as
	// no API server writes them: those stay.
	ManagedStart, ManagedEnd int32
}

// ReadOptions are how a list is read.
type ReadOptions struct {
	// Limit is how many bytes one item may have.
	Limit int
	// APIVersion and Kind are those of the items. Where an encoding leaves them out
	// of typed lists they are put in; with Kind "" they are not.
	APIVersion, Kind string
}

// ListMeta is what a list says of itself, as it came.
type ListMeta struct {
	Kind, APIVersion          string
	ResourceVersion, Continue string
	// RemainingItemCount is nil when the list does not say it.
	RemainingItemCount *int64
	// Shard is the selector of the part of the collection that the list is, "" for all.
	Shard string
}

// Take copies the metadata of a list.
func (m *ListMeta) Take(from *metav1.ListMeta) {
	m.ResourceVersion, m.Continue, m.RemainingItemCount = from.ResourceVersion, from.Continue, from.RemainingItemCount
	m.Shard = ""
	if from.ShardInfo != nil {
		m.Shard = from.ShardInfo.Selector
	}
}

// Event is one event of a watch.
type Event struct {
	Type api.EventType
	// Object is the object, or for ERROR a Status, in the form of Encoded.Raw. It is
	// the receiver's.
	Object []byte
}

// Complete returns the event, or an error when it lacks a part.
func (e Event) Complete() (Event, error) {
	if e.Type == 0 || e.Object == nil {
		return Event{}, errors.New("malformed watch event: it lacks its type or its object")
	}
	return e, nil
}

// Events reads the events of one watch. Next returns io.EOF after the last whole
// event, io.ErrUnexpectedEOF when the stream ends inside one. An error is final. It is
// not safe for concurrent use.
type Events interface {
	Next() (Event, error)
}

// Sizes of what lists and watches are read through.
const (
	// ListBuffer is for lists. It grows for objects that do not fit.
	ListBuffer = 128 << 10
	// WatchBuffer is for watches while they are quiet.
	WatchBuffer = 4 << 10
	// KeepBuffer is the size above which a watch's buffer is given up after the event
	// that it grew for.
	KeepBuffer = 256 << 10
)

// ErrTooLarge says that one object, or one value beside the objects, is larger than the
// limit it was read with.
var ErrTooLarge = errors.New("object is larger than the limit")

// TooLarge is ErrTooLarge of what was being read.
func TooLarge(what string, limit int) error {
	return fmt.Errorf("%s: %w of %d bytes", what, ErrTooLarge, limit)
}

// Inside turns the end of a stream into an error, for places where it must not end.
func Inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ParseEventType reads the type of a watch event.
func ParseEventType(name []byte) (api.EventType, error) {
	t := api.ParseEventType(string(name))
	if t == 0 {
		return 0, fmt.Errorf("watch event has the unknown type %q", name)
	}
	return t, nil
}
