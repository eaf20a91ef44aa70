package protobuf

import (
	"bytes"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// HideAnnotations returns an ObjectMeta without some annotations; metadata itself if it has none of
// them.
func HideAnnotations(metadata []byte, keys []string) ([]byte, error) {
	if !slices.ContainsFunc(keys, func(key string) bool { return bytes.Contains(metadata, []byte(key)) }) {
		return metadata, nil
	}
	out := make([]byte, 0, len(metadata))
	written := 0
	err := walk(metadata, func(f field) error {
		start := written
		written = f.end
		if f.num == metaAnnotations && f.typ == protowire.BytesType {
			l, err := mapEntry(f.bytes)
			if err != nil || slices.Contains(keys, string(l.Key)) {
				return err
			}
		}
		out = append(out, metadata[start:f.end]...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading metadata: %w", err)
	}
	return out, nil
}
