package reflector

import (
	"context"
	"errors"

	"github.com/kubeweir/kubeweir/cache/source"
)

// ListsVersions reports whether the source is a VersionLister that, as far as is known, has lists
// of the resource's versions.
func (f *Reflector) ListsVersions() bool {
	_, ok := f.Source.(source.VersionLister)
	return ok && !f.NoVersions.Load()
}

// ListVersions calls VersionLister.ListVersions. The error wraps ErrUnsupported if the source has
// no usable lists of the resource's versions, which is remembered. It is safe for concurrent use.
func (f *Reflector) ListVersions(ctx context.Context, opts source.ListOptions, visit func(key string, rv uint64) error) (source.ListMeta, error) {
	if !f.ListsVersions() {
		return source.ListMeta{}, source.ErrUnsupported
	}
	meta, err := f.Source.(source.VersionLister).ListVersions(ctx, f.Resource, opts, visit)
	if errors.Is(err, source.ErrUnsupported) {
		f.NoVersions.Store(true)
	}
	return meta, err
}

// ListVersionsPage lists one page of keys and versions. Without ListsVersions it lists the objects
// instead.
func (f *Reflector) ListVersionsPage(ctx context.Context, opts source.ListOptions, visit func(key string, rv uint64) error) (source.ListMeta, error) {
	meta, err := f.ListVersions(ctx, opts, visit)
	if !errors.Is(err, source.ErrUnsupported) {
		return meta, err
	}
	return f.Source.List(ctx, f.Resource, f.Encoding, opts, func(raw []byte) error {
		o, err := f.Decode(raw)
		if err != nil {
			return err
		}
		return visit(o.Key, o.RV)
	})
}
