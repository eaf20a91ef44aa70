package aggregator

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	"k8s.io/apiserver/pkg/util/responsewriter"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/openapi"
	"k8s.io/kube-aggregator/pkg/controllers/openapiv3"
	aggregator3 "k8s.io/kube-aggregator/pkg/controllers/openapiv3/aggregator"
)

// documents serves /openapi/v2 and /openapi/v3 of all servers, merged by the library's
// aggregators. Each server of the chain builds its documents when they are requested.
//
// The library's controller for v3 compares the local servers' lists of documents every second.
// Here each request does, so that an idle server does nothing and a custom resource is in the
// list as soon as its definition is established.
type documents struct {
	v2    *openapi.AggregationController
	v3    *openapiv3.AggregationController
	specs aggregator3.SpecProxier
}

// start runs the controllers, which download the documents of other API servers, until ctx ends.
func (d *documents) start(ctx context.Context) {
	go d.v2.RunWithContext(ctx)
	go d.v3.RunWithContext(ctx)
}

// add merges the documents of another API server, or renews them. It does not use UpdateAPIService
// of the controllers, which waits for the download.
func (d *documents) add(service *apiregistration.APIService, handler http.Handler) {
	d.v2.AddAPIService(handler, service)
	d.v3.AddAPIService(handler, service)
}

// remove takes the documents of an APIService out, if it has any.
func (d *documents) remove(name string) {
	d.v2.RemoveAPIService(name)
	d.v3.RemoveAPIService(name)
}

// renewed compares the local servers' lists of documents before it serves a request by next. It
// buffers the response: the library holds a lock until the last byte is written, and a client that
// reads slowly would block all others.
func (d *documents) renewed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for _, name := range d.specs.GetAPIServiceNames() {
			if !aggregator3.IsLocalAPIService(name) {
				continue
			}
			if err := d.specs.UpdateAPIServiceSpec(name); err != nil {
				http.Error(w, fmt.Sprintf("OpenAPI v3 of %s: %v", name, err), http.StatusInternalServerError)
				return
			}
		}
		buffer := responsewriter.NewInMemoryResponseWriter()
		next.ServeHTTP(buffer, req)
		maps.Copy(w.Header(), buffer.Header())
		if code := buffer.RespCode(); code != 0 {
			w.WriteHeader(code)
		}
		_, _ = w.Write(buffer.Data()) // fails when the client is gone
	})
}

// remotesOnly hides the local servers from the library's controller.
type remotesOnly struct {
	aggregator3.SpecProxier
}

// GetAPIServiceNames implements aggregator3.SpecProxier.
func (remotesOnly) GetAPIServiceNames() []string { return nil }
