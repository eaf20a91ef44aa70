package proxy

import (
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/discovery"
)

// noPrinters knows no kind.
type noPrinters struct{}

func (noPrinters) For(schema.GroupVersionKind) (table.Printer, bool) { return nil, false }

// badPrinters print no row of any kind.
type badPrinters struct{}

func (badPrinters) For(schema.GroupVersionKind) (table.Printer, bool) {
	return badPrinter{table.NewDefaultPrinter()}, true
}

type badPrinter struct{ table.Printer }

func (badPrinter) Row([]byte) (*table.Row, error) { return nil, errors.New("no row") }

// brokenBody is the body of an answer that breaks off.
type brokenBody struct{}

func (brokenBody) WriteTo(io.Writer) (int64, error) { return 0, errors.New("broke") }

func (b *gatewayBench) responds(resp api.Response) {
	b.upstream.response = func(*api.Request) *api.Response { r := resp; return &r }
}

// withResources replaces what discovery and the printers tell.
func withResources(o *Options, printers discovery.Printers, verbs ...string) {
	served := fakeDiscovery{cachetest.Pods: {GroupVersionResource: cachetest.Pods, Kind: "Pod", Namespaced: true, Verbs: verbs}}
	o.Resources = discovery.NewResources(served, printers, o.Manager, o.Logger, discovery.Options{})
}

// otherResources are Resources of which one is found in another way.
type otherResources struct {
	Resources
	gvr schema.GroupVersionResource
	res *source.Resource
	why reason.Forward
}

func (r otherResources) Lookup(gvr schema.GroupVersionResource) (*source.Resource, bool) {
	res, why := r.Find(gvr)
	return res, why == reason.NotForwarded
}

func (r otherResources) Find(gvr schema.GroupVersionResource) (*source.Resource, reason.Forward) {
	if gvr == r.gvr {
		return r.res, r.why
	}
	return r.Resources.Find(gvr)
}

func (r otherResources) Known(gvr schema.GroupVersionResource) (schema.GroupResource, bool) {
	if gvr == r.gvr {
		return gvr.GroupResource(), true
	}
	return r.Resources.Known(gvr)
}

// uncachedPods has pods forwarded because of why.
func uncachedPods(why reason.Forward) func(*Options) {
	return func(o *Options) { o.Resources = otherResources{o.Resources, cachetest.Pods, nil, why} }
}

// services are a resource that API servers select by fields of since 1.31.
func services(o *Options) {
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "services"}
	served := fakeDiscovery{gvr: {GroupVersionResource: gvr, Kind: "Service", Namespaced: true, Verbs: []string{"get", "list", "watch"}}}
	o.Resources = discovery.NewResources(served, defaultPrinters{}, o.Manager, o.Logger, discovery.Options{})
}

// forwardedCase is a read that is forwarded, and why.
type forwardedCase struct {
	why     reason.Forward
	line    string
	header  string
	options func(*Options)
	before  func(*gatewayBench)
}

const anyPods = "GET /api/v1/pods?resourceVersion=0"

// forwardedCases has one for each reason but Unservable, which requests do not get to:
// see TestReasonsOfTheCache.
var forwardedCases = []forwardedCase{
	{why: reason.Head, line: "HEAD /api/v1/pods?resourceVersion=0"},
	{why: reason.Subresource, line: "GET /api/v1/namespaces/default/pods/a/log"},
	{why: reason.Subresource, line: "GET /api/v1/namespaces/default/pods/a/exec", header: "Upgrade: websocket"},
	{why: reason.Upgraded, line: "GET /api/v1/pods?watch=true&resourceVersion=0", header: "Upgrade: websocket"},
	{why: reason.Inexact, line: "GET /api/v1/watch/pods?resourceVersion=0&sendInitialEvents=true"},
	{why: reason.Inexact, line: anyPods + "&unknown=1"},
	{why: reason.UnknownResource, line: "GET /api/v1/nothings"},
	{why: reason.Unwatchable, line: anyPods, options: func(o *Options) { withResources(o, defaultPrinters{}, "get", "list") }},
	{why: reason.DefinitionsUnknown, line: anyPods, options: func(o *Options) { withResources(o, noPrinters{}, "get", "list", "watch") }},
	{why: reason.Unserved, line: anyPods, options: uncachedPods(reason.Unserved)},
	{why: reason.Aggregated, line: anyPods, options: uncachedPods(reason.Aggregated)},
	{why: reason.Scope, line: "GET /api/v1/pods/a?resourceVersion=0"},
	{why: reason.Scope, line: "GET /api/v1/watch/pods/a"},
	{why: reason.Representation, line: anyPods + "&watch=1", header: "Accept: application/yaml"},
	{why: reason.Representation, line: anyPods, header: "Accept: application/*"},
	{why: reason.InvalidVersion, line: "GET /api/v1/pods?resourceVersion=abc"},
	{why: reason.InvalidSelector, line: anyPods + "&fieldSelector=spec.foo=x"},
	{why: reason.InvalidSelector, line: "GET /api/v1/services?resourceVersion=0&fieldSelector=metadata.name!=x,spec.type=y", options: services,
		before: func(b *gatewayBench) { b.source.SetServer(`{"gitVersion":"v1.30.14+k3s1"}`) }},
	{why: reason.CacheUnavailable, line: anyPods, before: func(b *gatewayBench) {
		failure := apierrors.NewForbidden(cachetest.Pods.GroupResource(), "", nil)
		b.source.Fail("watch", failure, failure)
	}},
	{why: reason.Redefined, line: anyPods, before: func(b *gatewayBench) {
		res, _ := b.gateway.Resources.Lookup(cachetest.Pods)
		res.Retire()
	}},
	{why: reason.AmbiguousVersion, line: "GET /api/v1/pods?resourceVersion=00"},
	{why: reason.AmbiguousVersion, line: "GET /api/v1/namespaces/default/pods?resourceVersion=101&limit=1&fieldSelector=metadata.name=a"},
	{why: reason.VersionAhead, line: "GET /api/v1/pods?resourceVersion=99999"},
	{why: reason.VersionAhead, line: "GET /api/v1/namespaces/default/pods/a?resourceVersion=99999"},
	{why: reason.VersionAhead, line: "GET /api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999"},
	{why: reason.VersionGone, line: "GET /api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact"},
	{why: reason.NotCurrent, line: "GET /api/v1/pods?watch=true", before: func(b *gatewayBench) {
		b.do(anyPods)
		b.source.NoCurrentVersion()
	}},
	{why: reason.Unrenderable, line: anyPods, header: "Accept: application/json;as=Table;v=v1;g=meta.k8s.io",
		options: func(o *Options) { withResources(o, badPrinters{}, "get", "list", "watch") }},
	{why: reason.TooLargeToShare, line: "GET /api/v1/pods", before: func(b *gatewayBench) {
		b.responds(api.Response{Status: 200, Length: 2 << 20, BodyTo: brokenBody{}})
	}},
	{why: reason.NoRoomToShare, line: "GET /api/v1/pods", before: func(b *gatewayBench) {
		b.responds(api.Response{Status: 200, Body: make([]byte, 1<<20)})
		for _, namespace := range []string{"a", "b", "c", "d"} { // responses that are never done
			b.gateway.Serve(b.t.Context(), request("GET /api/v1/namespaces/"+namespace+"/pods"))
		}
		b.responds(api.Response{Status: 200, Length: 100, BodyTo: brokenBody{}})
	}},
	{why: reason.GatewayRejected, line: "GET /api/v1/pods", before: func(b *gatewayBench) { b.responds(api.Response{Status: 403}) }},
	{why: reason.SharedFailed, line: "GET /api/v1/pods", before: func(b *gatewayBench) {
		b.responds(api.Response{Status: 200, Length: -1, BodyTo: brokenBody{}})
	}},
	{why: reason.History, line: "GET /api/v1/pods?watch=true&resourceVersion=101", options: func(o *Options) { o.Policy.Limits.Resumed = 4 },
		before: func(b *gatewayBench) {
			b.source.Bump(10)
			b.source.NoTimeouts()
		}},
}

// TestForwardedReads has a read for each reason: it is counted, and told to the client
// while the log's level is debug.
func TestForwardedReads(t *testing.T) {
	for _, c := range forwardedCases {
		t.Run(c.why.String(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newGatewayBench(t, func(o *Options) {
					o.Logger = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))
					if c.options != nil {
						c.options(o)
					}
				})
				b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
				if c.before != nil {
					c.before(b)
				}
				counter := b.gateway.account.metrics.forwarded[c.why]
				before := testutil.ToFloat64(counter)
				resp := b.gateway.Serve(t.Context(), request(c.line, "X-Test: 1", orElse(c.header, "X-Test: 1")))
				resp.Done(0, nil)
				if n := testutil.ToFloat64(counter) - before; n != 1 {
					t.Errorf("%s %s: counted %v times, forwarded for %q", c.line, c.header, n, resp.Header.Get(forwardedHeader))
				}
				if got := resp.Header.Get(forwardedHeader); got != c.why.String() {
					t.Errorf("the client is told %q", got)
				}
			})
		})
	}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// TestForwardedReasonIsWithheld: clients are told no reason unless the log's level is debug.
func TestForwardedReasonIsWithheld(t *testing.T) {
	b := newGatewayBench(t, nil)
	for _, line := range []string{"GET /api/v1/nothings", "HEAD /api/v1/pods", "GET /apis", "POST /api/v1/namespaces/default/pods"} {
		if _, _, h := b.do(line); h.Has(forwardedHeader) {
			t.Errorf("%s: %v", line, h)
		}
	}
	total := 0.0
	for _, why := range reason.Forwards() {
		total += testutil.ToFloat64(b.gateway.account.metrics.forwarded[why])
	}
	if total != 2 { // /apis is no resource, and a creation no read
		t.Errorf("%v reads were counted as forwarded", total)
	}
}

// TestImpersonationDecidedUpstream: a read whose impersonation the upstream decides.
func TestImpersonationDecidedUpstream(t *testing.T) {
	b := newGatewayBench(t, nil)
	x := b.gateway.newExchange(request(anyPods))
	x.Subject = &authn.Subject{UpstreamDecides: true}
	if x.Qualify(b.gateway.Resources); x.Unqualified != reason.Impersonated {
		t.Error(x.Unqualified)
	}
}

// TestReasonsOfTheCache: what requests do not get to, because they were qualified before.
func TestReasonsOfTheCache(t *testing.T) {
	b := newGatewayBench(t, nil)
	res, _ := b.gateway.Resources.Lookup(cachetest.Pods)
	c, err := b.gateway.Manager.Collection(t.Context(), res, api.JSON)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.gateway.Reader.Get(t.Context(), c, &read.Request{Name: "a", Rep: api.Representation{Encoding: api.Protobuf}})
	if !errors.Is(err, read.ErrForward) || read.ForwardReason(err) != reason.Unservable {
		t.Error(err)
	}
}

// TestEveryForwardReasonHasACase: a new reason needs a read that is forwarded for it.
func TestEveryForwardReasonHasACase(t *testing.T) {
	has := map[reason.Forward]bool{reason.Unservable: true, reason.Impersonated: true}
	for _, c := range forwardedCases {
		has[c.why] = true
	}
	for _, why := range reason.Forwards() {
		if !has[why] {
			t.Errorf("no case for %q", why)
		}
	}
}
