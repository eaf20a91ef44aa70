package read

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/form"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/shard"
)

// listRequest is a list in the terms of kube-apiserver's storage layer
// (k8s.io/apiserver/pkg/registry/generic/registry, Store.ListPredicate).
type listRequest struct {
	*Request
	filter *object.Filter // nil without selectors
	// namespace is the prefix that is listed: that of the request, or the only one that the field
	// selector leaves.
	namespace string
	// single is the key of the only object that can match, "" for ordinary lists.
	single string
	// storeOnly is Resource.BypassesWatchCache.
	storeOnly bool
}

func newListRequest(c Collection, req *Request) (*listRequest, error) {
	res := c.Resource()
	if req.Namespace != "" && !res.Namespaced {
		return nil, Forward(reason.Unservable, nil)
	}
	q := &listRequest{Request: req, filter: req.Filter, namespace: req.Namespace, storeOnly: res.BypassesWatchCache()}
	if q.filter == nil && selective(&req.Options) {
		var err error
		q.filter, err = object.NewFilter(res.Schema, req.Namespace, "", req.Options.LabelSelector, req.Options.FieldSelector)
		if err != nil {
			return nil, Forward(reason.InvalidSelector, err)
		}
		if text := req.Options.ShardSelector; text != "" {
			if q.filter.Shard, err = shard.Parse(text); err != nil {
				return nil, err
			}
		}
	}
	if !q.filter.Selective() {
		q.filter = nil
		return q, nil
	}
	q.narrow(res)
	return q, nil
}

func selective(o *api.ListOptions) bool {
	return o.LabelSelector != nil && !o.LabelSelector.Empty() || o.FieldSelector != nil && !o.FieldSelector.Empty() || o.ShardSelector != ""
}

// narrow recognizes lists of one namespace or one object by their field selector. As upstream, it
// does so for the first page only.
func (q *listRequest) narrow(res *source.Resource) {
	fields := q.filter.Fields
	if q.Options.Continue != "" || fields == nil {
		return
	}
	in := q.namespace
	if namespace, ok := fields.RequiresExactMatch("metadata.namespace"); ok && in == "" && res.Namespaced {
		if in = namespace; q.filter.Within == nil { // else see selectFrom
			q.namespace = namespace
		}
	}
	name, ok := fields.RequiresExactMatch("metadata.name")
	if !ok || name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/%") {
		return
	}
	if !res.Namespaced {
		q.single = name
	} else if in != "" {
		q.single = in + "/" + name
	}
}

// limit returns the page size, 0 for none. Lists of any version have no pages, because upstream's
// watch cache ignores their limit. Resources without a watch cache have pages.
func (q *listRequest) limit() int {
	if q.Options.Limit <= 0 || q.Options.ResourceVersion == "0" && !q.storeOnly {
		return 0
	}
	return int(min(q.Options.Limit, 1<<31-1))
}

// Selection is the result of a list before it is rendered.
type Selection struct {
	store.Selection
	// RV is the version that the list reports.
	RV    uint64
	limit int // the requested page size, 0 for none
	// token and remaining are set if objects remain after the page.
	token     string
	remaining *int64
	// Variant spells the selectors. Two selections of one snapshot with the same variant,
	// namespace, first key and limit have the same objects.
	Variant string
	// shard spells the requested one, "" for all.
	shard string
}

// FormList returns the selection as forms take it. meta is the list metadata of its collection.
func (s *Selection) FormList(meta *source.ListMeta) *form.List {
	return &form.List{
		Objects:            s,
		Kind:               meta.Kind,
		APIVersion:         meta.APIVersion,
		RV:                 s.RV,
		Continue:           s.token,
		RemainingItemCount: s.remaining,
		Shard:              s.shard,
		Content:            s.Snapshot.Content(),
		Scope:              form.Scope{Namespace: s.Namespace, From: s.From, Limit: s.limit, Selectors: s.Variant},
	}
}

// resolve selects the objects of a list. It distinguishes the same cases as
// k8s.io/apiserver/pkg/storage/cacher (delegator.go, watch_cache.go), in the same order.
func (r *Reader) resolve(ctx context.Context, c Collection, q *listRequest) (*Selection, error) {
	opts := &q.Options
	if q.filter != nil && q.filter.Shard != nil {
		c.WantShard(q.filter.Shard)
	}
	if opts.Continue != "" {
		return r.resolveContinue(ctx, c, q)
	}
	if opts.ResourceVersion == "" {
		if !q.MostRecent {
			return nil, Forward(reason.NotCurrent, nil)
		}
		return r.latest(ctx, c, q, c.Snapshot(), "")
	}
	rv, err := api.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, api.NewInvalidListResourceVersion(opts.ResourceVersion, err)
	}
	if rv == 0 && opts.ResourceVersion != "0" {
		return nil, Forward(reason.AmbiguousVersion, nil) // "00": upstream treats it inconsistently
	}
	switch {
	case opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
		return r.exact(ctx, c, q, rv, "")
	case opts.ResourceVersionMatch == "" && rv > 0 && opts.Limit > 0:
		if q.single != "" {
			return nil, Forward(reason.AmbiguousVersion, nil) // upstream reads it from the store, at no exact version
		}
		return r.exact(ctx, c, q, rv, "")
	}
	v, err := r.snapshotNotOlderThan(ctx, c, rv)
	if err != nil {
		return nil, err
	}
	return r.latest(ctx, c, q, v, "")
}

// resolveContinue serves the pages after the first one.
func (r *Reader) resolveContinue(ctx context.Context, c Collection, q *listRequest) (*Selection, error) {
	token, err := api.DecodeContinue(q.Options.Continue)
	if err != nil {
		return nil, err
	}
	if rv := q.Options.ResourceVersion; rv != "" && rv != "0" {
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	if token.Within != q.filter.WithinID() {
		return nil, api.NewOtherNamespaces()
	}
	from := q.fromKey(token.Start)
	if token.ResourceVersion > 0 {
		return r.exact(ctx, c, q, uint64(token.ResourceVersion), from)
	}
	if !q.MostRecent {
		return nil, Forward(reason.NotCurrent, nil)
	}
	return r.latest(ctx, c, q, c.Snapshot(), from)
}

// fromKey returns the first key of a page.
func (q *listRequest) fromKey(start string) string {
	if q.namespace != "" {
		return q.namespace + "/" + start
	}
	return start
}

// exact selects from the state at rv.
func (r *Reader) exact(ctx context.Context, c Collection, q *listRequest, rv uint64, from string) (*Selection, error) {
	v, err := c.SnapshotAt(rv)
	// A token above the collection's version comes from the upstream, where the list began. On an
	// idle resource the watch would not bring that version, page after page.
	if store.IsTooLarge(err) && from == "" {
		if err := r.waitFor(ctx, c, rv); err != nil {
			return nil, err
		}
		v, err = c.SnapshotAt(rv)
	}
	if err != nil {
		// The upstream may have a version that is no longer held here, or says best that it is
		// gone.
		return nil, Forward(versionReason(err), err)
	}
	return q.selectFrom(ctx, v, rv, from, nil)
}

// versionReason distinguishes a version that is still to come from one that is no longer held.
func versionReason(err error) reason.Forward {
	if store.IsTooLarge(err) {
		return reason.VersionAhead
	}
	return reason.VersionGone
}

// latest selects from the latest snapshot v.
func (r *Reader) latest(ctx context.Context, c Collection, q *listRequest, v *store.Snapshot, from string) (*Selection, error) {
	if q.filter.HasTerms() && q.single == "" && from == "" && q.limit() == 0 {
		if objs, at := c.Select(ctx, q.filter); at != nil && at.RV() >= v.RV() {
			s := q.newSelection(at, at.RV(), "")
			s.IsPicked, s.Objects = true, objs
			return s, nil
		}
	}
	var isIndexed func(*object.Object) bool
	if from == "" {
		isIndexed = upstreamIndex(c.Resource(), q.filter)
	}
	return q.selectFrom(ctx, v, v.RV(), from, isIndexed)
}

// newSelection returns a selection without objects. It must contain everything that determines
// which objects of a snapshot belong to it: what is derived from one selection is reused for an
// equal one.
func (q *listRequest) newSelection(v *store.Snapshot, rv uint64, from string) *Selection {
	s := &Selection{Selection: store.Selection{Snapshot: v, Namespace: q.namespace, From: from}, RV: rv, limit: q.limit()}
	if q.filter != nil {
		s.Variant = SelectorKey(q.filter)
		if q.filter.Shard != nil {
			s.shard = q.filter.Shard.String()
		}
	}
	return s
}

// selectFrom selects from v, beginning at the key from. rv is the version to report. isIndexed is
// that of upstreamIndex. The error is that of ctx.
func (q *listRequest) selectFrom(ctx context.Context, v *store.Snapshot, rv uint64, from string, isIndexed func(*object.Object) bool) (*Selection, error) {
	s := q.newSelection(v, rv, from)
	if q.filter == nil {
		q.selectRun(s)
		return s, nil
	}
	s.IsPicked = true
	if q.single != "" {
		if o := v.Get(q.single); o != nil && q.filter.Matches(o) {
			s.Objects = []*object.Object{o}
		}
		return s, nil
	}
	search := store.Cancellation{Context: ctx}
	ascend := func(visit func(*object.Object) bool) { v.Ascend(q.namespace, from, visit) }
	within := q.filter.Within != nil
	if within {
		// Only the objects in these namespaces, each of which is a range of keys.
		isIndexed = nil
		ascend = func(visit func(*object.Object) bool) { v.AscendNamespaces(q.filter, from, visit) }
	}
	if q.filter.Shard != nil && isIndexed == nil && !within {
		if objs, ok := v.SelectShard(q.filter, q.namespace, from, s.limit, &search); ok {
			if search.Seen {
				return nil, ctx.Err()
			}
			if s.Objects = objs; s.limit > 0 && len(objs) >= s.limit {
				s.Objects = objs[:s.limit:s.limit]
				last := objs[s.limit-1].Key
				if v.CountFrom(q.namespace, last+"\x00") > 0 { // of any shard, as upstream
					q.page(s, last)
				}
			}
			return s, nil
		}
	}
	counts := within && !q.filter.HasTerms() && q.filter.Shard == nil // then all in them match
	more := int64(0)
	ascend(func(o *object.Object) bool {
		switch {
		case search.Requested():
			return false
		case s.limit > 0 && len(s.Objects) == s.limit:
			// As upstream: something remains if its scan would visit another object, matching or
			// not.
			if isIndexed == nil || isIndexed(o) {
				more++
			}
			return more == 0 || counts
		case counts || q.filter.Matches(o):
			s.Objects = append(s.Objects, o)
		}
		return true
	})
	if search.Seen {
		return nil, ctx.Err()
	}
	if more > 0 {
		if counts {
			s.remaining = &more
		}
		q.page(s, s.Objects[s.limit-1].Key)
	}
	return s, nil
}

// selectRun selects without selectors.
func (q *listRequest) selectRun(s *Selection) {
	s.N = s.Snapshot.CountFrom(s.Namespace, s.From)
	limit := s.limit
	if limit == 0 || s.N <= limit {
		return
	}
	remaining := int64(s.N - limit)
	s.N, s.remaining = limit, &remaining
	from := s.From
	if s.Namespace != "" {
		from = max(from, s.Namespace+"/")
	}
	v := s.Snapshot
	q.page(s, v.At(v.Len()-v.CountFrom("", from)+limit-1).Key)
}

// page makes s a page that is not the last one.
func (q *listRequest) page(s *Selection, last string) {
	if q.namespace != "" {
		last = last[len(q.namespace)+1:]
	}
	s.token = api.ContinueToken{ResourceVersion: int64(s.RV), Start: last + "\x00", Within: q.filter.WithinID()}.Encode()
}

// retain keeps the snapshot of s for the pages that follow, if any do.
func (s *Selection) retain(c Collection) {
	if s.token != "" {
		c.Retain(s.Snapshot)
	}
}

// SelectorKey spells the selectors of f. A selector that matches nothing prints like one that
// matches everything, so present selectors are marked.
func SelectorKey(f *object.Filter) string {
	variant := ""
	if f.Labels != nil && !f.Labels.Empty() {
		variant = "=" + f.Labels.String()
	}
	if f.Fields != nil && !f.Fields.Empty() {
		variant += "\x00" + f.Fields.String()
	}
	if f.Shard != nil {
		variant += "\x01" + f.Shard.String()
	}
	if f.Within != nil {
		variant += "\x03" + f.Within.ID() // 2 begins that of a query
	}
	return variant
}

// upstreamIndex returns which objects the scan of an upstream visits that has an index for a term
// of f (SelectionPredicate.IndexFields of pods and resource slices), or nil.
func upstreamIndex(res *source.Resource, f *object.Filter) func(*object.Object) bool {
	const indexed = "spec.nodeName"
	switch res.GroupResource().String() {
	case "pods", "resourceslices.resource.k8s.io":
	default:
		return nil
	}
	for _, e := range f.Equalities() {
		if e.Kind == object.FieldTerm && e.Key == indexed && len(e.Values) == 1 {
			return func(o *object.Object) bool { return e.Field < len(o.Fields) && o.Fields[e.Field] == e.Values[0] }
		}
	}
	return nil
}
