package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/discovery"
)

// TestDifferential generates requests as bytes, over HTTP/1.1 and HTTP/2, and has them read by the transport and the
// gateway's own code on one side, by net/http, k8s.io/apiserver and go-restful on the other. Each is either forwarded as
// its client or means the same to both: the attributes that are authorized, what the cache selects, the options, and which
// route it takes.
func TestDifferential(t *testing.T) {
	d := newDifferential(t, soak.Seed(t))
	requests := soak.Cases(20_000, 2_000_000)
	var wg sync.WaitGroup
	wg.Go(func() { d.run(d.overHTTP1(t, 1), 1, requests*3/4) })
	wg.Go(func() { d.run(d.overHTTP2(t, 2), 2, requests/4) })
	wg.Wait()
	d.report(t)
}

// differential is one run of the test.
type differential struct {
	gateway *Gateway
	oracle  *oracle
	seed    uint64
	began   time.Time

	mu struct {
		sync.Mutex
		requests, here, rejected int
		faults                   []string
	}
}

// differentialResources returns resources of every kind of scope. One of them is called namespaces
// and is in a group of its own.
func differentialResources() fakeDiscovery {
	d := fakeDiscovery{}
	for gvr, namespaced := range map[schema.GroupVersionResource]bool{
		cachetest.Pods:                                                true,
		{Version: "v1", Resource: "nodes"}:                            false,
		{Version: "v1", Resource: "namespaces"}:                       false,
		{Group: "apps", Version: "v1", Resource: "deployments"}:       true,
		{Group: "example.com", Version: "v1", Resource: "namespaces"}: true,
	} {
		d[gvr] = serverResource(gvr, namespaced)
	}
	return d
}

func newDifferential(t *testing.T, seed uint64) *differential {
	served := differentialResources()
	b := newGatewayBench(t, func(o *Options) {
		o.Resources = discovery.NewResources(served, defaultPrinters{}, o.Manager, o.Logger, discovery.Options{})
	})
	return &differential{gateway: b.gateway, oracle: newOracle(served), seed: seed, began: time.Now()}
}

// A reading is what the gateway makes of a request. here is false when it is forwarded as its client.
type reading struct {
	request    *api.Request
	here       bool
	attributes authz.Attributes
	read       *read.Request
}

// wireRequest is a generated request and what came of it.
type wireRequest struct {
	sent
	mine   *reading      // nil: refused by the transport
	theirs *http.Request // nil: refused by net/http
}

// read takes the way of Gateway.Serve and of read up to the cache.
func (d *differential) read(r *api.Request) *reading {
	x := d.gateway.newExchange(r)
	x.Subject = &authn.Subject{}
	out := &reading{request: r}
	r.Header.EndToEnd()
	if x.Qualify(d.gateway.Resources); x.Unqualified == reason.NotForwarded {
		out.here, out.attributes, out.read = true, authz.AttributesOf(x.Info), readRequest(x)
	}
	return out
}

// exchanger sends requests and fills in what both sides read.
type exchanger func(batch []*wireRequest) error

// run generates count requests and sends them in batches.
func (d *differential) run(send exchanger, protocol, count int) {
	g := newGenerator(d.seed, uint64(protocol))
	batch := make([]*wireRequest, 0, 64)
	for n := 0; n < count && !d.enough(); n += len(batch) {
		batch = batch[:0]
		for range min(cap(batch), count-n) {
			batch = append(batch, &wireRequest{sent: g.request()})
		}
		if err := send(batch); err != nil {
			d.fault(fmt.Sprintf("HTTP/%d: %v", protocol, err))
			return
		}
		d.compare(batch)
	}
}

func (d *differential) compare(batch []*wireRequest) {
	here, rejected := 0, 0
	for _, r := range batch {
		if r.mine == nil {
			rejected++
			continue
		}
		if r.mine.here {
			here++
		}
		if fault := d.oracle.compare(r); fault != "" {
			d.fault(fmt.Sprintf("%s\n%q", fault, r.sent))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.requests += len(batch)
	d.mu.here += here
	d.mu.rejected += rejected
}

func (d *differential) fault(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.faults = append(d.mu.faults, text)
}

func (d *differential) enough() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.mu.faults) >= 10
}

func (d *differential) report(t *testing.T) {
	for _, f := range d.mu.faults {
		t.Error(f)
	}
	seconds := time.Since(d.began).Seconds()
	t.Logf("%d requests, %d of them read here and %d refused, in %.1f s: %.0f/s",
		d.mu.requests, d.mu.here, d.mu.rejected, seconds, float64(d.mu.requests)/seconds)
	if d.mu.here*10 < d.mu.requests || d.mu.here*10 > 9*d.mu.requests || d.mu.rejected*2 > d.mu.requests {
		t.Error("the requests are too much alike to show anything")
	}
}

// collector takes what a handler sees of the requests of one batch, by their number.
type collector[T any] struct {
	mu   sync.Mutex
	seen []T
}

func (c *collector[T]) start(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = make([]T, n)
}

// take notes v for the request that says its number in numberHeader.
func (c *collector[T]) take(number string, v T) {
	n, err := strconv.Atoi(number)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && n >= 0 && n < len(c.seen) {
		c.seen[n] = v
	}
}

// numberHeader numbers the requests of a batch.
const numberHeader = "X-Number"

// readingHandler is the gateway as far as TestDifferential needs it.
type readingHandler struct {
	d *differential
	collector[*reading]
}

// Serve implements api.Handler.
func (h *readingHandler) Serve(_ context.Context, r *api.Request) *api.Response {
	number := r.Header.Get(numberHeader)
	h.take(number, h.d.read(r))
	return &api.Response{Status: 204}
}
