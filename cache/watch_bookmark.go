package cache

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// appendBookmark appends a bookmark at rv; end marks the end of the initial events.
func (s *watchStream) appendBookmark(sc *scratch, rv uint64, end bool) error {
	t := s.c.bookmarkTemplate()
	res, rep := s.c.resource, s.req.Rep
	switch {
	case rep.Transform == api.Table:
		return s.appendTableBookmark(sc, t, rv, end)
	case rep.Transform == api.PartialMetadata && rep.Encoding == api.JSON:
		metadata, err := s.bookmarkMetadata(t, rv, end)
		if err != nil {
			return err
		}
		sc.frames = append(sc.frames, partialHeads[api.Bookmark], metadata, partialTail)
	case rep.Transform == api.PartialMetadata:
		metadata, err := s.bookmarkMetadata(t, rv, end)
		if err != nil {
			return err
		}
		sc.grow(func(b []byte) []byte {
			return object.AppendProtobufFrame(b, api.Bookmark, object.PartialAPIVersion, object.PartialKind, object.AppendPartialProtobuf(nil, metadata))
		})
	case rep.Encoding == api.Protobuf:
		sc.grow(func(b []byte) []byte {
			return object.AppendProtobufFrame(b, api.Bookmark, res.GroupVersion().String(), res.Kind, t.AppendObject(nil, rv, end))
		})
	default:
		sc.grow(func(b []byte) []byte {
			b = append(b, frameHeads[api.Bookmark]...)
			b = t.AppendObject(b, rv, end)
			return append(b, frameTail...)
		})
	}
	return nil
}

// bookmarkTemplate is the form of the collection's bookmarks: the upstream's
// own once it has sent one.
func (c *Collection) bookmarkTemplate() *object.BookmarkTemplate {
	if raw := c.BookmarkTemplate(); raw != nil {
		if t, _, _, err := object.ParseBookmark(c.encoding, raw); err == nil {
			return t
		}
	}
	return object.NewBookmarkTemplate(c.encoding, c.resource.GroupVersion().String(), c.resource.Kind, c.resource.Custom)
}

// bookmarkMetadata is the metadata of a bookmark as a PartialObjectMetadata has
// it. That of a custom resource is made anew: upstream reads it from an untyped
// object and writes it as ObjectMeta.
func (s *watchStream) bookmarkMetadata(t *object.BookmarkTemplate, rv uint64, end bool) ([]byte, error) {
	if !s.c.resource.Custom {
		return t.AppendMetadata(nil, rv, end), nil
	}
	if s.req.Rep.Encoding == api.JSON {
		return table.PartialMetadata(t.AppendObject(nil, rv, end))
	}
	meta := metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(rv, 10)}
	if end {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return meta.Marshal()
}

func (s *watchStream) appendTableBookmark(sc *scratch, t *object.BookmarkTemplate, rv uint64, end bool) error {
	raw := t.AppendObject(nil, rv, end)
	row, err := s.c.resource.Printer.Bookmark(raw)
	if err != nil {
		return fmt.Errorf("print bookmark: %w", err)
	}
	single := table.Single{ResourceVersion: strconv.FormatUint(rv, 10), Row: row}
	include := s.req.Rep.IncludeObject
	switch {
	case include == api.IncludeObjectFull:
		single.Object = table.FullObject(raw)
	case include == api.IncludeMetadata, end:
		metadata, err := s.bookmarkMetadata(t, rv, end)
		if err != nil {
			return err
		}
		single.Object = table.MetadataObject(metadata)
	}
	s.appendSingle(sc, api.Bookmark, &single, time.Now())
	return nil
}
