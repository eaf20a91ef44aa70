// Package encoding defines what the encodings of Kubernetes objects have in common. Each package
// below it implements objects, lists, watch events and bookmarks in one encoding, and no other
// package knows that encoding. They deal in bytes and positions and never decode an object; package
// object defines what an object is.
//
// Bodies of lists and watches are read as they arrive and never held completely. Every object gets
// an allocation of exactly its size, because the caller retains it.
package encoding

import (
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Codec reads an encoding in which the cache can store a collection. It is safe for concurrent use.
type Codec interface {
	// Scan scans s.Raw, which must be one complete object, and fills in what it finds. The last of
	// repeated members counts.
	Scan(s *Scan) error
	// Stamp returns a copy of a scanned object with another resourceVersion.
	Stamp(o Encoded, rv uint64) (Encoded, error)

	// ReadList reads a list and calls visit for each item, in order and in the form that watches
	// use. visit may retain the item. If visit returns an error, ReadList stops and returns it.
	ReadList(r io.Reader, opts ReadOptions, visit func(item []byte) error) (ListMeta, error)
	// NewEvents reads a watch whose objects have at most limit bytes.
	NewEvents(r io.Reader, limit int) Events

	// ParseBookmark reads the object of a BOOKMARK event.
	ParseBookmark(object []byte) (Bookmark, error)
	// LearnBookmark returns a template for bookmarks like object, which it retains.
	LearnBookmark(object []byte) (BookmarkTemplate, error)
	// NewBookmark returns a template with only the type and the metadata. sorted means that keys
	// are sorted, as for custom resources.
	NewBookmark(apiVersion, kind string, sorted bool) BookmarkTemplate

	// AppendMetadataHead appends what precedes n bytes of metadata in an object and depends on n.
	// MetadataHeadSize is its length.
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

// Encoded is one object in the form that watches use: in JSON with kind and apiVersion and without
// a newline, in protobuf the bare message.
type Encoded struct {
	Raw []byte
	// MetaStart and MetaEnd delimit the value of metadata in Raw: in JSON the object
	// with its braces, in protobuf the bytes of the ObjectMeta.
	MetaStart, MetaEnd int32
	// ManagedStart and ManagedEnd delimit the bytes to remove from an object to drop its
	// managedFields: in JSON the member with one adjacent comma, in protobuf all entries. Both are
	// 0 if there are none, or if they are not contiguous, which no API server writes: those are not
	// dropped.
	ManagedStart, ManagedEnd int32
}

// ReadOptions are the options for reading a list.
type ReadOptions struct {
	// Limit is the maximum size of one item in bytes.
	Limit int
	// APIVersion and Kind describe the items. If Kind is set they are inserted into items of
	// encodings that omit them in typed lists.
	APIVersion, Kind string
}

// ListMeta is the metadata of a list, as received.
type ListMeta struct {
	Kind, APIVersion          string
	ResourceVersion, Continue string
	// RemainingItemCount is nil if the list does not have it.
	RemainingItemCount *int64
	// Shard is the selector of the part of the collection that the list contains, "" for all.
	Shard string
}

// Take sets m from the metadata of a list.
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
	// Object is the object, or for ERROR a Status, in the form of Encoded.Raw. It belongs to the
	// receiver.
	Object []byte
}

// Complete returns the event, or an error if a part of it is missing.
func (e Event) Complete() (Event, error) {
	if e.Type == 0 || e.Object == nil {
		return Event{}, errors.New("malformed watch event: it lacks its type or its object")
	}
	return e, nil
}

// Events reads the events of one watch. Next returns io.EOF after the last complete event, and
// io.ErrUnexpectedEOF if the stream ends within one. An error is final. Events is not safe for
// concurrent use.
type Events interface {
	Next() (Event, error)
}

// Sizes of read buffers.
const (
	// ListBuffer is for lists. The buffer grows for objects that do not fit.
	ListBuffer = 128 << 10
	// WatchBuffer is for idle watches.
	WatchBuffer = 4 << 10
	// KeepBuffer is the size above which a watch releases its buffer after the event that it grew
	// for.
	KeepBuffer = 256 << 10
)

// ErrTooLarge means that an object, or a value outside the objects, is larger than the limit.
var ErrTooLarge = errors.New("object is larger than the limit")

// TooLarge returns an ErrTooLarge that says what was being read.
func TooLarge(what string, limit int) error {
	return fmt.Errorf("%s: %w of %d bytes", what, ErrTooLarge, limit)
}

// Inside turns io.EOF into io.ErrUnexpectedEOF, for places where the stream must not end.
func Inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ParseEventType parses the type of a watch event.
func ParseEventType(name []byte) (api.EventType, error) {
	t := api.ParseEventType(string(name))
	if t == 0 {
		return 0, fmt.Errorf("watch event has the unknown type %q", name)
	}
	return t, nil
}
