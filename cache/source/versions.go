package source

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
)

// VersionReader lists the keys and versions of the objects of one resource. It remembers if the
// source has no such lists. It is safe for concurrent use.
type VersionReader struct {
	source     Source
	references VersionLister // nil if the source is not one
	resource   *Resource
	encoding   api.Encoding
	decode     func([]byte) (*object.Object, error)
	lacking    atomic.Bool // the source has no such lists of the resource
}

// NewVersionReader returns a VersionReader for res. decode decodes objects in the encoding enc.
func NewVersionReader(src Source, res *Resource, enc api.Encoding, decode func([]byte) (*object.Object, error)) *VersionReader {
	n := &VersionReader{source: src, resource: res, encoding: enc, decode: decode}
	n.references, _ = src.(VersionLister)
	return n
}

// IsSupported reports whether the source is a VersionLister that, as far as is known, has lists
// of the resource's versions.
func (n *VersionReader) IsSupported() bool { return n.references != nil && !n.lacking.Load() }

// SetUnsupported records that the source has no usable lists of the resource's versions.
func (n *VersionReader) SetUnsupported() { n.lacking.Store(true) }

// List calls VersionLister.ListVersions. The error wraps ErrUnsupported if the source has no lists
// of the resource's versions.
func (n *VersionReader) List(ctx context.Context, opts VersionOptions, visit func(key string, rv uint64) error) (ListMeta, error) {
	if !n.IsSupported() {
		return ListMeta{}, ErrUnsupported
	}
	meta, err := n.references.ListVersions(ctx, n.resource, opts, visit)
	if errors.Is(err, ErrUnsupported) {
		n.SetUnsupported()
	}
	return meta, err
}

// Page lists one page of keys and versions. Without IsSupported it lists the objects instead.
func (n *VersionReader) Page(ctx context.Context, limit int64, token string, visit func(key string, rv uint64) error) (ListMeta, error) {
	meta, err := n.List(ctx, VersionOptions{Limit: limit, Continue: token}, visit)
	if !errors.Is(err, ErrUnsupported) {
		return meta, err
	}
	return n.source.List(ctx, n.resource, n.encoding, ListOptions{Limit: limit, Continue: token}, func(raw []byte) error {
		o, err := n.decode(raw)
		if err != nil {
			return err
		}
		return visit(o.Key, o.RV)
	})
}
