package cachetest

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/object"
)

// VersionLister is a Source that implements source.VersionLister. Its continue tokens are
// kube-apiserver's.
type VersionLister struct{ *Source }

var _ source.VersionLister = VersionLister{}

// ListVersions implements source.VersionLister.
func (s VersionLister) ListVersions(ctx context.Context, res *source.Resource, opts source.VersionOptions, visit func(key string, rv uint64) error) (source.ListMeta, error) {
	if err := s.enter(ctx, "references", fmt.Sprintf("references %s limit=%d", res.Resource, opts.Limit)); err != nil {
		return source.ListMeta{}, err
	}
	matching, meta, err := s.matching(res, opts)
	if err != nil {
		return source.ListMeta{}, err
	}
	if n := int(opts.Limit); n > 0 && len(matching) > n {
		remaining := int64(len(matching) - n)
		matching = matching[:n]
		start := strings.TrimPrefix(matching[n-1].Key, opts.Namespace+"/") + "\x00"
		meta.Continue = api.ContinueToken{ResourceVersion: int64(meta.ResourceVersion), Start: start}.Encode()
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

// matching returns the objects of a list regardless of its limit.
func (s VersionLister) matching(res *source.Resource, opts source.VersionOptions) ([]*object.Object, source.ListMeta, error) {
	l, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return nil, source.ListMeta{}, err
	}
	f, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		return nil, source.ListMeta{}, err
	}
	filter, err := object.NewFilter(res.Schema, opts.Namespace, "", l, f)
	if err != nil {
		return nil, source.ListMeta{}, err
	}
	meta, from := source.ListMeta{ResourceVersion: s.Revision()}, ""
	if opts.Continue != "" {
		token, err := api.DecodeContinue(opts.Continue)
		if err != nil {
			return nil, source.ListMeta{}, err
		}
		meta.ResourceVersion, from = uint64(token.ResourceVersion), token.Start
		if opts.Namespace != "" {
			from = opts.Namespace + "/" + from
		}
	}
	var matching []*object.Object
	for _, obj := range s.ObjectsAt(res.GroupVersionResource, meta.ResourceVersion) {
		o, err := res.Schema.Decode(api.JSON, Encode(obj, api.JSON))
		if err != nil {
			return nil, source.ListMeta{}, err
		}
		if o.Key >= from && filter.Matches(o) {
			matching = append(matching, o)
		}
	}
	return matching, meta, nil
}
