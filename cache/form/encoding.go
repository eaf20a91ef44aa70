package form

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
)

// encoding is what stands around the messages of objects in bodies and streams of one
// encoding. A message is all bytes of an object, or of what it is turned into, and
// nothing else.
type encoding interface {
	// separator stands between two items of a list.
	separator() string
	// itemHead writes what comes before an item whose message has n bytes, and itemSize
	// is the length of both.
	itemHead(w *chunks, n int)
	itemSize(n int) int
	// listFrame is what a list of n items has before and after them; size is the sum of
	// theirs.
	listFrame(t listType, meta *metav1.ListMeta, n, size int) (head, tail []byte)
	// objectFrame is what a body of one message has before and after it.
	objectFrame(apiVersion, kind string, n int) (head, tail []byte)

	// partialHead appends what a PartialObjectMetadata has before n bytes of metadata,
	// and partialTail is what comes after; partialSize is the length of all three.
	partialHead(b []byte, n int) []byte
	partialTail() string
	partialSize(n int) int

	// event appends a watch event.
	event(f *Frames, t api.EventType, apiVersion, kind string, message []byte)
	// partialEvent appends one whose object is a PartialObjectMetadata.
	partialEvent(f *Frames, t api.EventType, metadata []byte)
	// errorEvent appends the one that ends a watch with an error.
	errorEvent(f *Frames, status *metav1.Status)
	// around and aroundPartial are what event and partialEvent put around what they are
	// given; nil in encodings in which what comes before a message depends on its
	// length. In the others an item of a list has nothing before it.
	around() *constants
	aroundPartial() *constants
	// streamType is the Content-Type of watches.
	streamType() string
	// delimiter is how many bytes of an event in a stream tell it from the one before: it
	// has none of them as a message.
	delimiter() int
}

// constants are what events of each type have before and after an object.
type constants struct {
	heads [api.Error + 1][]byte
	tail  []byte
}

func (c *constants) append(f *Frames, t api.EventType, message []byte) {
	f.list = append(f.list, c.heads[t], message, c.tail)
}

// listType is how a list introduces itself.
type listType struct {
	apiVersion, kind string
	// untyped lists, those of custom resources, are kept without a Go type upstream.
	untyped bool
	// null is set when a list without items has none, instead of an empty array.
	null bool
}

// encodings are what objects are given in.
var encodings = [...]encoding{
	api.JSON:     jsonEncoding{},
	api.Protobuf: protobufEncoding{},
}
