package upstream

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
)

// immediateSource is the Source of an upstream in this process.
type immediateSource struct {
	*Source
	watches sync.Map // from feedKey to Progress, at most one for each collection
}

type feedKey struct {
	resource schema.GroupVersionResource
	encoding api.Encoding
}

var _ source.ImmediateSource = (*immediateSource)(nil)

// ImmediateSource returns the Source of an upstream in this process, which must have
// InProcess.Track.
func (c *Client) ImmediateSource() source.ImmediateSource {
	return &immediateSource{Source: c.Source()}
}

// Watch implements source.Source.
func (s *immediateSource) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	if opts.Probe {
		return s.Source.Watch(ctx, res, enc, opts, handle)
	}
	ctx, progress := s.c.local.Track(ctx)
	key := feedKey{res.GroupVersionResource, enc}
	s.watches.Store(key, progress)
	defer s.watches.CompareAndDelete(key, progress)
	return s.Source.Watch(ctx, res, enc, opts, handle)
}

// Progress implements source.ImmediateSource.
func (s *immediateSource) Progress(ctx context.Context, res *source.Resource, enc api.Encoding) (last, current uint64, shared bool, err error) {
	progress, ok := s.watches.Load(feedKey{res.GroupVersionResource, enc})
	if !ok {
		return 0, 0, false, source.ErrUnsupported
	}
	return progress.(Progress).Current(ctx)
}
