package read

import (
	"context"
	"errors"
	"time"

	"github.com/kubeweir/kubeweir/cache/freshness"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// List serves a list from c. The error is a Status error that the upstream would return, too,
// ErrForward, or that of ctx. The response has no Audit-Id. Its body may hold a snapshot until it
// has been written.
func (r *Reader) List(ctx context.Context, c Collection, req *Request) (*api.Response, error) {
	if req.Query != nil {
		return r.listQuery(ctx, c, req)
	}
	f := r.form(c, req)
	if f == nil {
		return nil, Forward(reason.Unservable, nil)
	}
	q, err := newListRequest(c, req)
	if err != nil {
		return nil, err
	}
	sel, err := r.resolve(ctx, c, q)
	if err != nil {
		return nil, err
	}
	sel.retain(c)
	return r.respond(c, req, f, sel.FormList(c.ListMeta()))
}

// Revalidate serves a list of the most recent state, or a later page of one, from a collection that
// is not known to hold that state. After the call began, the upstream names the objects of the list
// and their versions. If the collection holds exactly these, their bytes are the response, with the
// version of the upstream's list. The read is linearizable, and the upstream need not encode any
// object.
//
// Why it is correct: the version of an object identifies its content, so equal keys and versions
// mean equal objects, whatever version the collection is at. If they differ, the watch is a little
// behind, and Revalidate waits for it, Options.Wait at most. Once the watch has passed the
// upstream's list, the collection itself holds the most recent state. On a busy resource this is
// tried first, with the upstream's version alone.
//
// The errors are those of List.
func (r *Reader) Revalidate(ctx context.Context, c Collection, req *Request) (*api.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err // the client has left
	}
	f := r.form(c, req)
	if f == nil || req.Options.ResourceVersion != "" || req.Options.ShardSelector != "" {
		// An upstream that does not support shards would name all objects.
		return nil, Forward(reason.Unservable, nil)
	}
	q, err := newListRequest(c, req)
	if err != nil {
		return nil, err
	}
	from := ""
	if req.Options.Continue != "" {
		token, err := api.DecodeContinue(req.Options.Continue)
		if err != nil || token.ResourceVersion <= 0 {
			return nil, Forward(reason.NotCurrent, err)
		}
		from = q.fromKey(token.Start)
	}
	if c.Freshness().Lags() {
		// The watch would not bring in time what the upstream names, and on a slow link each byte
		// counts.
		return nil, Forward(reason.NotCurrent, errors.New("the watch lags"))
	}
	refs, err := c.Freshness().Versions(ctx, q.referenceOptions(), &req.Cost)
	if err != nil {
		return nil, leftOrForward(ctx, reason.NotCurrent, err)
	}
	sel, err := r.confirm(ctx, c, q, from, refs)
	if err != nil {
		return nil, err
	}
	return r.respond(c, req, f, sel.FormList(c.ListMeta()))
}

// referenceOptions returns the parameters of the list in the upstream's terms.
func (q *listRequest) referenceOptions() source.ListOptions {
	o := source.ListOptions{Namespace: q.Namespace, Limit: q.Options.Limit, Continue: q.Options.Continue}
	if s := q.Options.LabelSelector; s != nil {
		o.LabelSelector = s.String()
	}
	if s := q.Options.FieldSelector; s != nil {
		o.FieldSelector = s.String()
	}
	return o
}

// confirm selects the state that refs describe.
func (r *Reader) confirm(ctx context.Context, c Collection, q *listRequest, from string, refs *freshness.Versions) (*Selection, error) {
	deadline := time.Now().Add(r.wait)
	for {
		v := c.Snapshot()
		// At the list's own version, some of several changes may be missing.
		if v.RV() > refs.Meta.ResourceVersion || refs.IsOvertaken {
			var sel *Selection
			var err error
			if from != "" {
				sel, err = r.exact(ctx, c, q, refs.Meta.ResourceVersion, from)
			} else {
				sel, err = r.latest(ctx, c, q, v, "")
			}
			if err == nil {
				sel.retain(c)
			}
			return sel, err
		}
		sel, err := r.latest(ctx, c, q, v, from)
		if err != nil {
			return nil, err
		}
		if refs.MatchSelection(&sel.Selection) {
			sel.RV, sel.token, sel.remaining = refs.Meta.ResourceVersion, refs.Meta.Continue, refs.Meta.RemainingItemCount
			return sel, nil
		}
		// A missing change has at least the next version.
		next := max(refs.Newest, v.RV()+1)
		if err := c.WaitFor(ctx, next, time.Until(deadline)); err != nil {
			return nil, leftOrForward(ctx, reason.NotCurrent, err)
		}
	}
}
