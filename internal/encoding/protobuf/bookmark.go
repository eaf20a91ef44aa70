package protobuf

import (
	"fmt"
	"strconv"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// template implements encoding.BookmarkTemplate.
type template struct {
	// head and tail are the fields around the metadata.
	head, tail []byte
	// metadata is the ObjectMeta that was learned. marked is whether it had the annotation that
	// ends the initial events.
	metadata []byte
	marked   bool
}

// NewBookmark implements encoding.Codec. Messages do not contain their type.
func (Codec) NewBookmark(_, _ string, _ bool) encoding.BookmarkTemplate { return &template{} }

// AppendObject implements encoding.BookmarkTemplate.
func (t *template) AppendObject(dst []byte, rv uint64, end bool) []byte {
	dst = append(dst, t.head...)
	dst = appendBytesField(dst, objectMetadata, t.AppendMetadata(nil, rv, end))
	return append(dst, t.tail...)
}

// AppendMetadata implements encoding.BookmarkTemplate.
func (t *template) AppendMetadata(dst []byte, rv uint64, end bool) []byte {
	var annotation []byte
	if end && !t.marked {
		annotation = appendStringField(nil, mapKey, encoding.InitialEventsEnd)
		annotation = appendStringField(annotation, mapValue, "true")
	}
	metadata, err := rewriteMetadata(t.metadata, strconv.AppendUint(nil, rv, 10), annotation, !end)
	if err != nil {
		panic(err) // it was parsed before
	}
	return append(dst, metadata...)
}

// ParseBookmark implements encoding.Codec.
func (Codec) ParseBookmark(object []byte) (encoding.Bookmark, error) {
	p, err := parseBookmark(object)
	if err != nil {
		return encoding.Bookmark{}, fmt.Errorf("bookmark: %w", err)
	}
	return p.last, nil
}

// LearnBookmark implements encoding.Codec.
func (Codec) LearnBookmark(object []byte) (encoding.BookmarkTemplate, error) {
	p, err := parseBookmark(object)
	if err != nil {
		return nil, fmt.Errorf("bookmark: %w", err)
	}
	head, ok := metadataHead(p.object)
	switch {
	case p.named:
		return nil, fmt.Errorf("bookmark: %w", encoding.ErrNamed)
	case !ok || p.fields != 1:
		return nil, fmt.Errorf("bookmark: %w", encoding.ErrSplit)
	}
	return &template{
		head: object[:head], tail: object[p.object.MetaEnd:],
		metadata: object[p.object.MetaStart:p.object.MetaEnd], marked: p.last.InitialEventsEnd,
	}, nil
}

// parsed holds the parts of a bookmark.
type parsed struct {
	object encoding.Encoded
	fields int // number of metadata fields; the last one counts
	named  bool
	last   encoding.Bookmark
}

func parseBookmark(object []byte) (*parsed, error) {
	p := &parsed{object: encoding.Encoded{Raw: object}}
	var version []byte
	err := walkBytes(object, func(f field) error {
		if f.num != objectMetadata {
			return nil
		}
		p.fields++
		p.object.MetaStart, p.object.MetaEnd = int32(f.start), int32(f.end)
		return walkBytes(f.bytes, func(f field) error {
			switch f.num {
			case metaName:
				p.named = len(f.bytes) > 0
			case metaResourceVersion:
				version = f.bytes
			case metaAnnotations:
				return p.annotation(f.bytes)
			}
			return nil
		})
	})
	if err == nil && len(version) == 0 {
		err = encoding.ErrNoVersion
	}
	if err == nil {
		p.last.ResourceVersion, err = encoding.ParseVersion(version)
	}
	return p, err
}

func (p *parsed) annotation(entry []byte) error {
	l, err := mapEntry(entry)
	if string(l.Key) == encoding.InitialEventsEnd {
		p.last.InitialEventsEnd = string(l.Value) == "true"
	}
	return err
}
