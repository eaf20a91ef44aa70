package read

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/form"
	"github.com/kubeweir/kubeweir/cache/query"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// queryList is a list with a query. It has those objects that the selectors and the query's
// conditions match, in the query's order, from an offset on. All pages show the version of the
// first one, which is retained as for the pages of other lists.
type queryList struct {
	*Request
	*query.Query
	// selected spells the namespace and the selectors.
	selected string
	// token is the continue token of the page. On the first page it has no version.
	token query.Token
}

// listQuery is List with a query.
func (r *Reader) listQuery(ctx context.Context, c Collection, req *Request) (*api.Response, error) {
	f, err := r.queryForm(c, req)
	if err != nil {
		return nil, err
	}
	a, err := newQueryList(req, r.now())
	if err == nil {
		err = a.Check(c.Resource())
	}
	if err != nil {
		return nil, err
	}
	whole := a.whole()
	q, err := newListRequest(c, &whole)
	if err != nil {
		return nil, err
	}
	sel, err := r.resolve(ctx, c, q)
	if err != nil {
		return nil, a.expired(err)
	}
	page, counts, err := a.apply(ctx, c, sel)
	switch {
	case err != nil && (ctx.Err() != nil || source.IsStatus(err)):
		return nil, err
	case err != nil: // an object cannot be read
		return nil, unrenderable(c, err)
	}
	page.retain(c)
	if req.ObjectsFrom != nil {
		if page.Objects, err = r.objectsFrom(ctx, req.ObjectsFrom, page); err != nil {
			return nil, a.expired(err)
		}
	}
	list := page.FormList(c.ListMeta())
	if list.Counts = counts; counts != nil && req.Rep.Encoding == api.CBOR {
		if list.Counts, err = cbor.Append(nil, counts, cbor.Untyped); err != nil {
			return nil, unrenderable(c, err)
		}
	}
	return r.respond(c, req, f, list)
}

// queryForm returns the form of a list with a query. The error is a 406 that names the supported
// forms.
func (r *Reader) queryForm(c Collection, req *Request) (form.Form, error) {
	const have = "ask for application/json"
	rep := req.Rep
	switch {
	case req.Query.Fields != nil && (rep.Transform != api.NoTransform || rep.Encoding == api.Protobuf):
		return nil, api.NewNotAcceptable("parameter fields: it is answered for whole objects in JSON, YAML and CBOR, not in protobuf, for Tables or metadata: " + have)
	case len(req.Query.CountBy) > 0 && rep.Encoding == api.Protobuf:
		return nil, api.NewNotAcceptable("parameter countBy: it is answered in JSON, YAML and CBOR and for Tables in JSON, not in protobuf: " + have)
	}
	if req.ObjectsFrom != nil {
		c = req.ObjectsFrom
	}
	f := r.form(c, req)
	if f == nil {
		return nil, Forward(reason.Unservable, nil)
	}
	if req.Query.Fields != nil {
		form.Project(f, req.Query.Fields)
	}
	if len(req.Query.Sort) > 0 {
		form.KeepOrder(f)
	}
	return f, nil
}

// objectsFrom returns the objects of a page from another collection of the resource. Each encoding
// has a watch of its own, and one may be behind the other. A version of an object is the same in
// both.
func (r *Reader) objectsFrom(ctx context.Context, c Collection, page *Selection) ([]*object.Object, error) {
	newest := uint64(0)
	for _, o := range page.Objects {
		newest = max(newest, o.RV)
	}
	v, err := r.snapshotNotOlderThan(ctx, c, newest)
	if err != nil {
		return nil, err
	}
	objs, ok := page.objectsIn(v)
	if !ok { // an object has changed since
		if v, err = c.SnapshotAt(page.RV); err != nil {
			return nil, Forward(versionReason(err), err)
		}
		if objs, ok = page.objectsIn(v); !ok {
			return nil, Forward(reason.CacheUnavailable, nil)
		}
	}
	if page.token != "" {
		c.Retain(v)
	}
	return objs, nil
}

// objectsIn returns the objects of a page as a snapshot of another collection has them. ok is false
// if it has other versions.
func (s *Selection) objectsIn(v *store.Snapshot) (objs []*object.Object, ok bool) {
	objs = make([]*object.Object, len(s.Objects))
	for i, o := range s.Objects {
		if objs[i] = v.Get(o.Key); objs[i] == nil || objs[i].RV != o.RV {
			return nil, false
		}
	}
	return objs, true
}

func newQueryList(req *Request, now time.Time) (*queryList, error) {
	a := &queryList{Request: req, Query: req.Query, selected: req.Namespace, token: query.Token{Offset: req.Query.Offset}}
	for _, selector := range []fmt.Stringer{req.Options.LabelSelector, req.Options.FieldSelector} {
		a.selected += "\x00"
		if selector != nil {
			a.selected += selector.String()
		}
	}
	a.selected += "\x00" + req.Options.ShardSelector
	if req.Options.Continue == "" {
		if a.Timed() {
			a.token.At = now.Unix()
		}
		return a, nil
	}
	if rv := req.Options.ResourceVersion; rv != "" && rv != "0" {
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	var err error
	if a.token, err = a.Decode(req.Options.Continue, a.selected); err == nil && a.token.Within != req.Filter.WithinID() {
		err = api.NewOtherNamespaces()
	}
	return a, err
}

// whole returns the request of all objects that the selectors match.
func (a *queryList) whole() Request {
	whole := *a.Request
	whole.Query = nil
	o := &whole.Options
	switch {
	case a.token.ResourceVersion > 0:
		o.ResourceVersion, o.ResourceVersionMatch = strconv.FormatUint(a.token.ResourceVersion, 10), metav1.ResourceVersionMatchExact
	case o.Limit > 0 && o.ResourceVersion != "" && o.ResourceVersion != "0" && o.ResourceVersionMatch == "":
		o.ResourceVersionMatch = metav1.ResourceVersionMatchExact // as resolve does
	}
	o.Limit, o.Continue = 0, ""
	return whole
}

// expired translates the error of the version that a token names.
func (a *queryList) expired(err error) error {
	if a.token.ResourceVersion > 0 && errors.Is(err, ErrForward) && ForwardReason(err) == reason.VersionGone {
		return apierrors.NewResourceExpired("The version of this list is no longer retained: begin it again without the parameter continue.")
	}
	return err
}

// apply makes the page of a selection and the JSON of the counts, nil without countBy.
func (a *queryList) apply(ctx context.Context, c Collection, sel *Selection) (*Selection, []byte, error) {
	t := query.NewResultSet(ctx, c.Columns(), c.Resource(), &sel.Selection, a.User, a.Rep.Redacted)
	for i := range a.Where {
		if err := t.Where(&a.Where[i], time.Unix(a.token.At, 0)); err != nil {
			return nil, nil, err
		}
	}
	counts, err := a.count(t)
	if err != nil {
		return nil, nil, err
	}
	sel.Objects, sel.IsPicked = nil, true
	sel.Variant += "\x02" + a.Query.String() + "@" + strconv.Itoa(a.token.Offset)
	if a.Timed() {
		sel.Variant += "@" + strconv.FormatInt(a.token.At, 10)
	}
	if a.CountsAlone {
		return sel, counts, nil
	}
	return sel, counts, a.page(t, sel)
}

// page puts the objects of the page into sel.
func (a *queryList) page(t *query.ResultSet, sel *Selection) error {
	all := t.Len()
	from, to := min(a.token.Offset, all), all
	if limit := a.Options.Limit; limit > 0 {
		to = from + int(min(limit, int64(all-from)))
	}
	sel.limit = to - from
	positions, err := t.Sorted(a.Sort, from, to)
	if err != nil {
		return err
	}
	sel.Objects = make([]*object.Object, 0, len(positions))
	for _, at := range positions {
		sel.Objects = append(sel.Objects, t.Object(at))
	}
	if to < all {
		remaining := int64(all - to)
		sel.remaining = &remaining
		token := query.Token{ResourceVersion: sel.RV, Offset: to, At: a.token.At, Within: a.Filter.WithinID()}
		sel.token = token.Encode(a.Query, a.selected)
	}
	return nil
}

// count returns the JSON of the counts.
func (a *queryList) count(t *query.ResultSet) ([]byte, error) {
	if len(a.CountBy) == 0 {
		return nil, nil
	}
	type countBy struct {
		Path    string         `json:"path"`
		Without int            `json:"without"`
		Values  map[string]int `json:"values"`
	}
	out := struct {
		Count   int       `json:"count"`
		CountBy []countBy `json:"countBy"`
	}{Count: t.Len()}
	for _, path := range a.CountBy {
		groups, without, err := t.CountBy(path)
		if err != nil {
			return nil, err
		}
		if len(groups) > query.MaxGroups {
			return nil, query.BadRequest(api.QueryCountBy, fmt.Errorf("%s has more than %d different values: count by another path, or narrow the list with where", path, query.MaxGroups))
		}
		out.CountBy = append(out.CountBy, countBy{path.String(), without, groups})
	}
	return json.Marshal(out)
}
