package encoding

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Framing writes the bytes around messages in the bodies and streams of one encoding, exactly as
// the serializers of k8s.io/apimachinery do. A message is all bytes of an object (Encoded.Raw), or
// of its transformed form. Results are shared and must not be changed. A Framing is safe for
// concurrent use.
type Framing interface {
	// Separator separates two items of a list.
	Separator() string
	// AppendItemHead appends what precedes an item whose message has n bytes. ItemSize is the
	// length of both.
	AppendItemHead(dst []byte, n int) []byte
	ItemSize(n int) int
	// List returns what a list of n items has before and after them; size is the sum of their
	// ItemSizes.
	List(t ListType, meta *metav1.ListMeta, n, size int) (head, tail []byte)
	// Body returns what a body of one message of n bytes has before and after it.
	Body(apiVersion, kind string, n int) (head, tail []byte)

	// AppendPartialHead appends what a PartialObjectMetadata has before n bytes of metadata.
	// PartialTail is what comes after; PartialSize is the length of all three.
	AppendPartialHead(dst []byte, n int) []byte
	PartialTail() string
	PartialSize(n int) int

	// Event appends a watch event.
	Event(p *Pieces, t api.EventType, apiVersion, kind string, message []byte)
	// EventHead appends what an event has before a message of n bytes. EventTail is what comes
	// after.
	EventHead(p *Pieces, t api.EventType, apiVersion, kind string, n int)
	EventTail() []byte
	// Around returns what Event puts around a message, and AroundPartial what an event with a
	// PartialObjectMetadata has around the metadata. Both are nil in encodings in which the head
	// depends on the length of the message. In the others nothing precedes an item of a list.
	Around() *Constants
	AroundPartial() *Constants
	// Status returns the message of a Status.
	Status(status *metav1.Status) []byte
	// StreamType is the Content-Type of watches.
	StreamType() string
	// Delimiter is how many bytes at the beginning of an event in a stream separate it from the
	// previous one. As a WebSocket message of its own an event does not have them.
	Delimiter() int
}

// The maximum lengths of what AppendItemHead and AppendPartialHead append.
const (
	MaxItemHead = 16
	MaxHead     = 128
)

// Constants hold what events of each type have before and after an object.
type Constants struct {
	Heads [api.Error + 1][]byte
	Tail  []byte
}

// Append appends an event.
func (c *Constants) Append(p *Pieces, t api.EventType, message []byte) {
	p.List = append(p.List, c.Heads[t], message, c.Tail)
}

// AppendPartialEvent appends a watch event whose object is a PartialObjectMetadata, with metadata
// in one part or two.
func AppendPartialEvent(f Framing, p *Pieces, t api.EventType, metadata, rest []byte) {
	tail := f.EventTail()
	if around := f.AroundPartial(); around != nil {
		p.List, tail = append(p.List, around.Heads[t]), around.Tail
	} else {
		n := len(metadata) + len(rest)
		f.EventHead(p, t, PartialAPIVersion, PartialKind, f.PartialSize(n))
		p.Make(func(b []byte) []byte { return f.AppendPartialHead(b, n) })
	}
	p.List = append(p.List, metadata)
	if rest != nil {
		p.List = append(p.List, rest)
	}
	p.List = append(p.List, tail)
}

// ListType describes a list's type.
type ListType struct {
	APIVersion, Kind string
	// Untyped is set for lists that have no Go type upstream: those of custom resources.
	Untyped bool
	// Null is set if a list without items has null instead of an empty array.
	Null bool
}

// Pieces are byte slices to be written one after the other.
type Pieces struct {
	List [][]byte
	// Buf holds the pieces that have to be built.
	Buf []byte
}

// Make appends a piece that appending builds in the buffer.
func (p *Pieces) Make(appending func([]byte) []byte) { p.List = append(p.List, p.Made(appending)) }

// Made returns the piece that appending builds in the buffer.
func (p *Pieces) Made(appending func([]byte) []byte) []byte {
	start := len(p.Buf)
	p.Buf = appending(p.Buf)
	return p.Buf[start:len(p.Buf):len(p.Buf)]
}
