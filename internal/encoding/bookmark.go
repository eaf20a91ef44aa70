package encoding

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Bookmark is the content of a bookmark.
type Bookmark struct {
	ResourceVersion uint64
	// InitialEventsEnd is true for the bookmark that ends a streaming list (KEP-3157).
	InitialEventsEnd bool
}

// InitialEventsEnd is the annotation of such a bookmark. Its value is "true".
const InitialEventsEnd = metav1.InitialEventsAnnotationKey

// BookmarkTemplate renders bookmarks for one collection. kube-apiserver encodes an empty object of
// the kind, with its required fields, so the template is learned from a bookmark of the upstream
// (Codec.LearnBookmark). Before the first one arrives, Codec.NewBookmark provides a template. A
// BookmarkTemplate is immutable and safe for concurrent use.
type BookmarkTemplate interface {
	// AppendObject appends the bookmark's object for rv in the form of Encoded.Raw. end adds the
	// annotation that ends the initial events.
	AppendObject(dst []byte, rv uint64, end bool) []byte
	// AppendMetadata appends only the value of metadata.
	AppendMetadata(dst []byte, rv uint64, end bool) []byte
}

// Errors of bookmarks that no template can be learned from.
var (
	ErrNamed = errors.New("not a bookmark: it has a name")
	ErrSplit = errors.New("metadata is not one field")
)

// ParseVersion parses the resourceVersion of a bookmark.
func ParseVersion(text []byte) (uint64, error) {
	rv, err := api.ParseResourceVersion(string(text))
	if err != nil || rv == 0 {
		// A watch that resumes from version 0 would start at the present state.
		return 0, fmt.Errorf("bookmark has the resourceVersion %q", text)
	}
	return rv, nil
}
