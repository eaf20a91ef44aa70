package fairness

import (
	"bytes"
	"context"
	"net/http"
	"net/url"

	flowcontrol "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Serve limits a request of u that reaches no Handler. It calls serve once there is a seat, which the
// request holds until serve returns. A response is the rejection; then serve was not called.
func (c *Controller) Serve(ctx context.Context, u user.Info, r *api.Request, serve func()) *api.Response {
	info := r.Info()
	ctx = apirequest.WithUser(ctx, u)
	ctx = apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{
		IsResourceRequest: info.IsResourceRequest, Path: info.Path, Verb: info.Verb,
		APIPrefix: info.APIPrefix, APIGroup: info.APIGroup, APIVersion: info.APIVersion,
		Namespace: info.Namespace, Resource: info.Resource, Subresource: info.Subresource, Name: info.Name,
	})
	served := false
	ctx = context.WithValue(ctx, nextKey{}, http.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served = true
		serve()
	})))
	req := &http.Request{Method: r.Method, URL: &url.URL{Path: r.Path, RawQuery: r.RawQuery}, Header: make(http.Header), Host: r.Host, Proto: r.Proto}
	w := rejection{header: http.Header{"Cache-Control": {api.CacheControl}}} // of a filter before this one
	c.filter.ServeHTTP(&w, req.WithContext(ctx))
	if served {
		return nil
	}
	// The caller adds these to all responses.
	w.header.Del(flowcontrol.ResponseHeaderMatchedFlowSchemaUID)
	w.header.Del(flowcontrol.ResponseHeaderMatchedPriorityLevelConfigurationUID)
	resp := &api.Response{Status: w.status, Body: w.body.Bytes(), Length: int64(w.body.Len())}
	for name, values := range w.header {
		for _, v := range values {
			resp.Header.Add(name, v)
		}
	}
	return resp
}

// rejection is a ResponseWriter that holds a response.
type rejection struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *rejection) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *rejection) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *rejection) Write(b []byte) (int, error) { return w.body.Write(b) }
