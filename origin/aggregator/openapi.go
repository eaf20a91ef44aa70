package aggregator

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/util/responsewriter"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/openapi"
	aggregator2 "k8s.io/kube-aggregator/pkg/controllers/openapi/aggregator"
	"k8s.io/kube-aggregator/pkg/controllers/openapiv3"
	aggregator3 "k8s.io/kube-aggregator/pkg/controllers/openapiv3/aggregator"

	"github.com/kubeweir/kubeweir/origin/internal/schemas"
)

// firstDownload is how long the first request for a document waits for the API servers
// elsewhere. Those that take longer are in later answers.
const firstDownload = 2 * time.Second

// documents serves /openapi/v2 and /openapi/v3 of all servers, merged by the library's
// aggregators. These are made by the first request for a document: making one asks every
// server of the chain for its own, which it builds then.
//
// The library looks every second whether the local servers' documents have changed.
// Here each request looks, so that nothing runs when nobody asks, and a custom resource
// is in the answer as soon as its definition is established.
type documents struct {
	server *Server
	group  schemas.Group

	// building is held while merged documents are made, which takes seconds; it is
	// locked before mu.
	building sync.Mutex
	mu       struct {
		sync.Mutex
		// ctx is nil before the post-start hook.
		ctx context.Context
		// remotes by the name of the APIService.
		remotes map[string]remoteDocuments
	}
	// two and three are nil until they are made. They are set with mu locked; a request
	// reads them without, because mu is held while the library's lock is waited for,
	// under which it downloads.
	two   atomic.Pointer[merged2]
	three atomic.Pointer[merged3]
}

// remoteDocuments is an APIService whose documents come from another API server.
type remoteDocuments struct {
	service *apiregistration.APIService
	handler http.Handler
}

type merged2 struct {
	handler    http.Handler
	controller *openapi.AggregationController
}

type merged3 struct {
	handler    http.Handler
	specs      aggregator3.SpecProxier
	controller *openapiv3.AggregationController
}

func (d *documents) install(m *mux.PathRecorderMux) {
	m.Handle("/openapi/v2", d.serve(d.handler2))
	m.Handle("/openapi/v3", d.serve(d.handler3))
	m.HandlePrefix("/openapi/v3/", d.serve(d.handler3))
}

func (d *documents) serve(current func() (http.Handler, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h, err := current()
		if err != nil {
			d.server.cfg.Logger.Error("building an OpenAPI document failed", "path", req.URL.Path, "error", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h.ServeHTTP(w, req)
	})
}

// start is the post-start hook: what asks other API servers again runs until ctx ends.
func (d *documents) start(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.ctx = ctx
	if two := d.two.Load(); two != nil {
		go two.controller.RunWithContext(ctx)
	}
	if three := d.three.Load(); three != nil {
		go three.controller.RunWithContext(ctx)
	}
}

// add makes the documents of an APIService part of the merged ones, or renews them.
func (d *documents) add(service *apiregistration.APIService, handler http.Handler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.mu.remotes[service.Name]
	if d.mu.remotes == nil {
		d.mu.remotes = map[string]remoteDocuments{}
	}
	d.mu.remotes[service.Name] = remoteDocuments{service, handler}
	if two := d.two.Load(); two != nil {
		// Its UpdateAPIService would wait for what the server sends.
		two.controller.AddAPIService(handler, service)
	}
	if three := d.three.Load(); three != nil {
		if known {
			three.controller.UpdateAPIService(handler, service)
		} else {
			three.controller.AddAPIService(handler, service)
		}
	}
}

// remove takes the documents of an APIService out, if it has any.
func (d *documents) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.mu.remotes[name]; !known {
		return
	}
	delete(d.mu.remotes, name)
	if two := d.two.Load(); two != nil {
		two.controller.RemoveAPIService(name)
	}
	if three := d.three.Load(); three != nil {
		three.controller.RemoveAPIService(name)
	}
}

func (d *documents) handler2() (http.Handler, error) {
	if two := d.two.Load(); two != nil {
		return two.handler, nil
	}
	d.building.Lock()
	defer d.building.Unlock()
	if two := d.two.Load(); two != nil {
		return two.handler, nil
	}
	generic := d.server.Generic
	own := mux.NewPathRecorderMux("origin/aggregator openapi v2")
	downloader := aggregator2.NewDownloader()
	specs, err := aggregator2.BuildAndRegisterAggregator(&downloader, generic.NextDelegate(),
		generic.Handler.GoRestfulContainer.RegisteredWebServices(), d.group.V2(), own)
	if err != nil {
		return nil, fmt.Errorf("OpenAPI v2: %w", err)
	}
	two := &merged2{handler: own, controller: openapi.NewAggregationController(&downloader, specs)}
	d.mu.Lock()
	d.two.Store(two)
	remotes := slices.Collect(maps.Keys(d.mu.remotes))
	for _, remote := range d.mu.remotes {
		two.controller.AddAPIService(remote.handler, remote.service)
	}
	if d.mu.ctx != nil {
		go two.controller.RunWithContext(d.mu.ctx)
	}
	d.mu.Unlock()
	d.downloadFirst(remotes, specs.UpdateAPIServiceSpec)
	return two.handler, nil
}

func (d *documents) handler3() (http.Handler, error) {
	three, err := d.built3()
	if err != nil {
		return nil, err
	}
	for _, name := range three.specs.GetAPIServiceNames() {
		if !aggregator3.IsLocalAPIService(name) {
			continue
		}
		if err := three.specs.UpdateAPIServiceSpec(name); err != nil {
			return nil, fmt.Errorf("OpenAPI v3 of %s: %w", name, err)
		}
	}
	return three.handler, nil
}

func (d *documents) built3() (*merged3, error) {
	if three := d.three.Load(); three != nil {
		return three, nil
	}
	d.building.Lock()
	defer d.building.Unlock()
	if three := d.three.Load(); three != nil {
		return three, nil
	}
	generic := d.server.Generic
	own := mux.NewPathRecorderMux("origin/aggregator openapi v3")
	specs, err := aggregator3.BuildAndRegisterAggregator(aggregator3.NewDownloader(), generic.NextDelegate(),
		generic.Handler.GoRestfulContainer, d.group.V3(), own)
	if err != nil {
		return nil, fmt.Errorf("OpenAPI v3: %w", err)
	}
	three := &merged3{handler: unlocked(own), specs: specs, controller: openapiv3.NewAggregationController(remotesOnly{specs})}
	d.mu.Lock()
	d.three.Store(three)
	remotes := slices.Collect(maps.Keys(d.mu.remotes))
	for _, remote := range d.mu.remotes {
		three.controller.AddAPIService(remote.handler, remote.service)
	}
	if d.mu.ctx != nil {
		go three.controller.RunWithContext(d.mu.ctx)
	}
	d.mu.Unlock()
	d.downloadFirst(remotes, specs.UpdateAPIServiceSpec)
	return three, nil
}

// unlocked answers from memory: the library's handler of documents holds a lock until
// the last byte is taken, and one client that reads slowly would stop all the others.
func unlocked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		answer := responsewriter.NewInMemoryResponseWriter()
		h.ServeHTTP(answer, req)
		maps.Copy(w.Header(), answer.Header())
		if code := answer.RespCode(); code != 0 {
			w.WriteHeader(code)
		}
		_, _ = w.Write(answer.Data()) // an error is the client's leaving
	})
}

// downloadFirst asks all API servers elsewhere, and waits for them, but not for long.
// Errors are the controller's to see, which asks again. So are panics of the library
// about what they answered, which its queue recovers from and here nobody would.
func (d *documents) downloadFirst(names []string, download func(name string) error) {
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					d.server.cfg.Logger.Error("panic while reading an OpenAPI document", "apiservice", name, "panic", p)
				}
			}()
			_ = download(name)
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	late := time.NewTimer(firstDownload)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	}
}

// remotesOnly hides the local servers from the library's controller, which would look at
// them every second.
type remotesOnly struct {
	aggregator3.SpecProxier
}

// GetAPIServiceNames implements aggregator3.SpecProxier.
func (remotesOnly) GetAPIServiceNames() []string { return nil }
