package cachetest

import (
	"context"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/source"
)

// ImmediateSource is a Source that implements source.ImmediateSource.
type ImmediateSource struct {
	*Source
	// Deaf makes Progress unsupported.
	Deaf atomic.Bool
	// Asked counts the calls of Progress.
	Asked atomic.Int64
}

var _ source.ImmediateSource = (*ImmediateSource)(nil)

// Progress implements source.ImmediateSource.
func (s *ImmediateSource) Progress(_ context.Context, res *source.Resource, _ api.Encoding) (last, current uint64, shared bool, err error) {
	s.Asked.Add(1)
	if s.Deaf.Load() {
		return 0, 0, false, source.ErrUnsupported
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if log := s.resourceLocked(res.GroupVersionResource).log; len(log) > 0 {
		last = log[len(log)-1].RV
		shared = len(log) > 1 && log[len(log)-2].RV == last
	}
	if shared {
		for st := range s.mu.streams {
			st.timer = true
		}
		s.wakeLocked()
	}
	return last, s.mu.rev, shared, nil
}
