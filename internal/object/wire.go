package object

import (
	"fmt"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/json"
	"github.com/kubeweir/kubeweir/internal/encoding/protobuf"
)

// The names below stand for those of internal/encoding until their callers have moved.

const (
	ProtobufTail      = protobuf.Tail
	PartialAPIVersion = encoding.PartialAPIVersion
	PartialKind       = encoding.PartialKind
	PartialListKind   = encoding.PartialListKind
)

// BookmarkTemplate is encoding.BookmarkTemplate.
type BookmarkTemplate struct{ encoding.BookmarkTemplate }

// NewBookmarkTemplate is Codec.NewBookmark.
func NewBookmarkTemplate(enc api.Encoding, apiVersion, kind string, sorted bool) *BookmarkTemplate {
	return &BookmarkTemplate{Codec(enc).NewBookmark(apiVersion, kind, sorted)}
}

// ParseBookmark is Codec.LearnBookmark and Codec.ParseBookmark.
func ParseBookmark(enc api.Encoding, raw []byte) (t *BookmarkTemplate, rv uint64, end bool, err error) {
	learned, err := Codec(enc).LearnBookmark(raw)
	if err != nil {
		return nil, 0, false, fmt.Errorf("parse %s bookmark: %w", enc, err)
	}
	b, err := Codec(enc).ParseBookmark(raw)
	return &BookmarkTemplate{learned}, b.ResourceVersion, b.InitialEventsEnd, err
}

// JSONListItemSize is the length of json.Item.
func JSONListItemSize(o *Object) int { return jsonItemSize(json.Item(o.Raw, o.ListOffset)) }

func jsonItemSize(open string, rest []byte) int { return len(open) + len(rest) }

// ProtobufListItemSize is Codec.ItemSize of protobuf.
func ProtobufListItemSize(rawLen int) int { return protobuf.Codec{}.ItemSize(rawLen) }

// AppendProtobufListHead is protobuf.AppendListHead.
func AppendProtobufListHead(dst []byte, apiVersion, kind string, listMeta []byte, itemsSize int) []byte {
	return protobuf.AppendListHead(dst, apiVersion, kind, listMeta, itemsSize)
}

// AppendProtobufObjectHead is protobuf.AppendHead.
func AppendProtobufObjectHead(dst []byte, apiVersion, kind string, rawLen int) []byte {
	return protobuf.AppendHead(dst, apiVersion, kind, rawLen)
}

// AppendProtobufFrame is protobuf.AppendEvent.
func AppendProtobufFrame(dst []byte, t api.EventType, apiVersion, kind string, raw []byte) []byte {
	return protobuf.AppendEvent(dst, t, apiVersion, kind, raw)
}

// AppendProtobufFrameHead is protobuf.AppendEventHead.
func AppendProtobufFrameHead(dst []byte, t api.EventType, apiVersion, kind string, rawLen int) []byte {
	return protobuf.AppendEventHead(dst, t, apiVersion, kind, rawLen)
}

// AppendPartialProtobuf is a PartialObjectMetadata of protobuf.
func AppendPartialProtobuf(dst, metadata []byte) []byte {
	return append(protobuf.Codec{}.AppendPartialHead(dst, len(metadata)), metadata...)
}

// ParseProtobufObject is protobuf.Open.
func ParseProtobufObject(body []byte) (apiVersion, kind string, raw []byte, err error) {
	e, err := protobuf.Open(body)
	return e.APIVersion, e.Kind, e.Raw, err
}
