package read

import (
	"context"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form"
	"github.com/kubeweir/kubeweir/reason"
)

// List answers a list from c. The error is a Status error that the upstream would answer with as
// well, ErrForward, or that of ctx. The response has no Audit-Id. Its body may hold a snapshot
// until it has been written.
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
	return r.respond(c, req, f, sel.FormList(c.ListKind()))
}

// respond renders a list.
func (r *Reader) respond(c Collection, req *Request, f form.Form, list *form.List) (*api.Response, error) {
	resp, err := r.renderer.List(f, list, req.client())
	if err != nil {
		return nil, unrenderable(c, err)
	}
	return resp, nil
}
