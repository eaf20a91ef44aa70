package cachetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// VersionLister is a Source that implements source.VersionLister.
type VersionLister struct{ *Source }

var _ source.VersionLister = VersionLister{}

// ListVersions implements source.VersionLister.
func (s VersionLister) ListVersions(ctx context.Context, res *source.Resource, opts source.ListOptions, visit func(key string, rv uint64) error) (source.ListMeta, error) {
	if err := s.enter(ctx, "references", fmt.Sprintf("references %s limit=%d", res.Resource, opts.Limit)); err != nil {
		return source.ListMeta{}, err
	}
	matching, rev, err := s.matching(res, opts)
	if err != nil {
		return source.ListMeta{}, err
	}
	meta := source.ListMeta{ResourceVersion: rev}
	if n := int(opts.Limit); n > 0 && len(matching) > n {
		remaining := int64(len(matching) - n)
		matching = matching[:n]
		start := strings.TrimPrefix(matching[n-1].Key, opts.Namespace+"/") + "\x00"
		meta.Continue = api.ContinueToken{ResourceVersion: int64(rev), Start: start}.Encode()
		if opts.LabelSelector == "" && opts.FieldSelector == "" {
			meta.RemainingItemCount = &remaining
		}
	}
	for _, o := range matching {
		if err := visit(o.Key, o.RV); err != nil {
			return source.ListMeta{}, err
		}
	}
	return meta, ctx.Err()
}

// matching returns the objects of a list regardless of its limit, and its revision.
func (s VersionLister) matching(res *source.Resource, opts source.ListOptions) (matching []*object.Object, rev uint64, err error) {
	filter, err := newFilter(res, opts.Namespace, opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rev, from, err := s.positionLocked(source.ListOptions{Continue: opts.Continue})
	if err != nil {
		return nil, 0, err
	}
	if from != "" && opts.Namespace != "" {
		from = opts.Namespace + "/" + from
	}
	for _, c := range s.resourceLocked(res.GroupVersionResource).at(rev) {
		o, err := res.Schema.Decode(api.JSON, Encode(c.Object, api.JSON))
		if err != nil {
			return nil, 0, err
		}
		if o.Key >= from && filter.Matches(o) {
			matching = append(matching, o)
		}
	}
	return matching, rev, nil
}

func newFilter(res *source.Resource, namespace, label, field string) (*object.Filter, error) {
	l, labelErr := labels.Parse(label)
	f, fieldErr := fields.ParseSelector(field)
	if err := errors.Join(labelErr, fieldErr); err != nil {
		return nil, err
	}
	return object.NewFilter(res.Schema, namespace, "", l, f)
}

// ImmediateSource is a Source that implements source.ImmediateSource.
type ImmediateSource struct {
	*Source
	// Deaf makes Progress unsupported.
	Deaf atomic.Bool
	// Requested counts the calls of Progress.
	Requested atomic.Int64
}

var _ source.ImmediateSource = (*ImmediateSource)(nil)

// Progress implements source.ImmediateSource.
func (s *ImmediateSource) Progress(_ context.Context, res *source.Resource, _ api.Encoding) (last, current uint64, shared bool, err error) {
	s.Requested.Add(1)
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
