package proxy

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/revocation"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// fakeUpstream answers what is forwarded with a line that says so, and reviews:
// every token is its user's name, and users may do what allowed says.
type fakeUpstream struct {
	mu        sync.Mutex
	forwarded []forwardedRequest
	response  func(*api.Request) *api.Response
	allowed   func(*authorizationv1.SubjectAccessReviewSpec) bool
}

type forwardedRequest struct {
	request *api.Request
	as      upstream.Credentials
}

func (f *fakeUpstream) Forward(_ context.Context, r *api.Request, as upstream.Credentials) *api.Response {
	f.mu.Lock()
	f.forwarded = append(f.forwarded, forwardedRequest{r, as})
	response := f.response
	f.mu.Unlock()
	if response != nil {
		return response(r)
	}
	return &api.Response{Status: 200, Body: []byte("upstream")}
}

func (f *fakeUpstream) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.forwarded)
}

type tokenReviewer struct{}

func (tokenReviewer) Create(_ context.Context, r *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	r = r.DeepCopy()
	r.Status.Authenticated = r.Spec.Token != "bad"
	r.Status.User = authenticationv1.UserInfo{Username: r.Spec.Token, Groups: []string{"system:authenticated"}}
	return r, nil
}

type accessReviewer struct{ f *fakeUpstream }

func (a accessReviewer) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	r = r.DeepCopy()
	a.f.mu.Lock()
	defer a.f.mu.Unlock()
	r.Status.Allowed = a.f.allowed == nil || a.f.allowed(&r.Spec)
	return r, nil
}

type fakeDiscovery map[schema.GroupVersionResource]discovery.ServerResource

func (d fakeDiscovery) Lookup(gvr schema.GroupVersionResource) (discovery.ServerResource, bool) {
	r, ok := d[gvr]
	return r, ok
}
func (d fakeDiscovery) Known(gvr schema.GroupVersionResource) (discovery.ServerResource, bool) {
	return d.Lookup(gvr)
}
func (fakeDiscovery) Refresh(context.Context) error { return nil }

// podDiscovery returns the discovery of a cluster that serves pods.
func podDiscovery() fakeDiscovery {
	return fakeDiscovery{cachetest.Pods: {
		GroupVersionResource: cachetest.Pods, Kind: "Pod", Namespaced: true, Verbs: []string{"get", "list", "watch", "create"},
	}}
}

type defaultPrinters struct{}

func (defaultPrinters) For(schema.GroupVersionKind) (table.Printer, bool) {
	return table.NewDefaultPrinter(), true
}

// gatewayBench is a Gateway before a source in memory.
type gatewayBench struct {
	t        testing.TB
	source   *cachetest.Source
	upstream *fakeUpstream
	gateway  *Gateway
}

func newGatewayBench(t testing.TB, change func(*Options)) *gatewayBench {
	t.Helper()
	return newGatewayBenchOf(t, nil, change)
}

// newGatewayBenchOf has other resources besides pods.
func newGatewayBenchOf(t testing.TB, others []*source.Resource, change func(*Options)) *gatewayBench {
	t.Helper()
	return newGatewayBenchFrom(t, others, func(s *cachetest.Source) source.Source { return s }, change)
}

// newGatewayBenchFrom has another source, made of that in memory.
func newGatewayBenchFrom(t testing.TB, others []*source.Resource, from func(*cachetest.Source) source.Source, change func(*Options)) *gatewayBench {
	t.Helper()
	b := &gatewayBench{t: t, source: cachetest.New(append(others, cachetest.PodResource())...), upstream: &fakeUpstream{}}
	log := slog.New(slog.DiscardHandler)
	manager, err := cache.NewManager(cache.Options{Source: from(b.source), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(manager.Close)
	reader, err := read.New(read.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	authenticator, err := authn.New(authn.Options{TokenReviewer: tokenReviewer{}, Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	authorizer := authz.New(authz.Options{AccessReviewer: accessReviewer{b.upstream}})
	served := podDiscovery()
	for _, r := range others {
		served[r.GroupVersionResource] = discovery.ServerResource{
			GroupVersionResource: r.GroupVersionResource, Kind: r.Kind, Namespaced: r.Namespaced, Verbs: []string{"get", "list", "watch", "create"},
		}
	}
	o := Options{
		Forwarder: b.upstream, Resources: discovery.NewResources(served, defaultPrinters{}, manager, log, discovery.Options{}),
		Manager: manager, Reader: reader, Watches: watch.New(reader, nil),
		Authenticator: authenticator, Authorizer: authorizer,
		Revocation: revocation.New(revocation.Options{Authorizer: authorizer, Authenticator: authenticator}),
		Policy:     policy.Policy{Consistency: policy.Consistency{Default: policy.ModeStrict}, Limits: policy.Limits{InFlight: 100, LongRunning: 100, CollapsedBytes: 1 << 20}},
		Health:     healthz.New(), Logger: log,
	}
	if change != nil {
		change(&o)
	}
	b.gateway = New(o)
	return b
}

// request makes one as "GET /path?query" with "Name: value" headers.
func request(line string, header ...string) *api.Request {
	method, target, _ := strings.Cut(line, " ")
	path, query, _ := strings.Cut(target, "?")
	r := &api.Request{Method: method, Path: path, RawPath: path, RawQuery: query, Proto: "HTTP/1.1"}
	r.Header.Add("Authorization", "Bearer admin")
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	r.Upgrade = r.Header.Get("Upgrade")
	return r
}

// do serves a request and reads the answer; a watch is only begun.
func (b *gatewayBench) do(line string, header ...string) (status int, body string, h api.Header) {
	b.t.Helper()
	resp := b.gateway.Serve(b.t.Context(), request(line, header...))
	out := resp.Body
	if resp.BodyTo != nil {
		var buf strings.Builder
		if _, err := resp.BodyTo.WriteTo(&buf); err != nil {
			b.t.Fatal(err)
		}
		out = []byte(buf.String())
	}
	resp.Done(int64(len(out)), nil)
	return resp.Status, string(out), resp.Header
}

func names(t testing.TB, list string) string {
	t.Helper()
	var l struct {
		Items []struct {
			Metadata struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(list), &l); err != nil {
		t.Fatalf("%v: %.200s", err, list)
	}
	var all []string
	for _, i := range l.Items {
		all = append(all, i.Metadata.Name)
	}
	return strings.Join(all, " ")
}

func TestRoutes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		for _, c := range []struct {
			line, header string
			cached       bool
		}{
			{"GET /api/v1/pods?resourceVersion=0", "", true},
			{"GET /api/v1/namespaces/default/pods/a?resourceVersion=0", "", true},
			{"GET /api/v1/namespaces/default/pods/a", "", false},
			{"GET /api/v1/pods", "", false},
			{"GET /api/v1/pods?resourceVersion=0", "Accept: application/yaml", true},
			{"GET /api/v1/pods?resourceVersion=0&watch=1", "Accept: application/yaml", false},
			{"GET /api/v1/pods?resourceVersion=0&labelSelector=%21%21", "", false},
			{"GET /api/v1/pods?resourceVersion=0&fieldSelector=spec.foo=x", "", false},
			{"GET /api/v1/pods?resourceVersion=abc", "", false},
			{"GET /api/v1/pods?resourceVersion=99999", "", false},
			{"GET /api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact", "", false},
			{"GET /api/v1/namespaces/default/pods/a/log?resourceVersion=0", "", false},
			{"HEAD /api/v1/pods?resourceVersion=0", "", false},
			{"POST /api/v1/namespaces/default/pods", "", false},
			{"GET /api/v1/nodes?resourceVersion=0", "", false},
			{"GET /apis", "", false},
			{"GET /api/v1/pods?watch=true&resourceVersion=0", "Upgrade: websocket", false},
			{"GET /api/v1/namespaces/default/pods/a?resourceVersion=0&watch=1", "", true},
			{"GET /api/v1/namespaces/default/pods/a//log?resourceVersion=0", "", false},
			{"GET /api/v1/namespaces/default/pods/a/?resourceVersion=0", "", false},
			{"GET /api/v1/pods/a?resourceVersion=0", "", false},
			{"GET /api/v1/watch/pods?resourceVersion=0", "", true},
			{"GET /api/v1/watch/pods", "", true},
			{"GET /api/v1/watch/namespaces/default/pods/a", "", true},
			{"GET /api/v1/watch/namespaces/default/pods/a?fieldSelector=metadata.name=b", "", false},
			{"GET /api/v1/pods?resourceVersion=0&unknown=1", "", false},
			{"GET /api/v1/pods?resourceVersion=0&timeout=x", "", false},
		} {
			before := b.upstream.count()
			header := []string{"X-Test: 1"}
			if c.header != "" {
				header = append(header, c.header)
			}
			status, body, h := b.do(c.line, header...)
			if cached := b.upstream.count() == before; cached != c.cached || status != 200 || (body == "upstream") == c.cached {
				t.Errorf("%s %s: %d, cached %v: %.100s", c.line, c.header, status, cached, body)
			}
			if !h.Has("Audit-Id") {
				t.Errorf("%s: no Audit-Id", c.line)
			}
		}
	})
}

func TestForwardedAsTheClient(t *testing.T) {
	b := newGatewayBench(t, nil)
	b.do("POST /api/v1/namespaces/default/pods", "Authorization: Bearer jane", "X-Remote-User: root")
	b.do("GET /apis", "Authorization: ", "X-Remote-User: root")
	b.do("GET /api/v1/pods", "Authorization: Bearer jane") // collapsed: as the gateway
	want := []struct {
		as    upstream.As
		token string
	}{{upstream.AsClient, "Bearer jane"}, {upstream.AsClient, ""}, {upstream.AsGateway, ""}}
	for i, w := range want {
		f := b.upstream.forwarded[i]
		if f.as.As != w.as || f.request.Header.Get("Authorization") != w.token || f.request.Header.Has("X-Remote-User") {
			t.Errorf("request %d: as %v with %v", i, f.as, f.request.Header)
		}
	}
}

// TestConnectionNamesTheClientsOwn: what a client names in Connection is dropped before the gateway adds anything, and
// after it was found out who the client is.
func TestConnectionNamesTheClientsOwn(t *testing.T) {
	b := newGatewayBench(t, nil)
	b.do("POST /api/v1/namespaces/default/pods", "Authorization: Bearer jane", "Impersonate-User: bob", "X-One: 1",
		"Connection: Authorization, Impersonate-User, Audit-Id, X-One, Upgrade", "Upgrade: h2c", "Audit-Id: mine")
	f := b.upstream.forwarded[0]
	for name, want := range map[string]string{"Authorization": "Bearer jane", "Impersonate-User": "bob", "Audit-Id": "mine", "X-One": "", "Connection": "", "Upgrade": ""} {
		if got := f.request.Header.Get(name); got != want {
			t.Errorf("%s: %q went upstream, want %q", name, got, want)
		}
	}
}

func TestRejections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		b.upstream.allowed = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
			return s.User == "jane" && s.ResourceAttributes.Namespace == "default"
		}
		if status, body, _ := b.do("GET /api/v1/pods?resourceVersion=0", "Authorization: Bearer bad"); status != 401 || !strings.Contains(body, `"reason":"Unauthorized"`) {
			t.Errorf("bad token: %d %s", status, body)
		}
		if status, body, _ := b.do("GET /api/v1/namespaces/default/pods?resourceVersion=0", "Authorization: Bearer jane"); status != 200 || names(t, body) != "a" {
			t.Errorf("jane in her namespace: %d %s", status, body)
		}
		for _, accept := range []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"} {
			for _, query := range []string{"", "resourceVersion=0", "watch=true&resourceVersion=0"} {
				if strings.HasPrefix(query, "watch") {
					accept = strings.Replace(accept, "MetadataList", "Metadata", 1)
				}
				before := b.upstream.count()
				status, body, _ := b.do("GET /api/v1/pods?"+query, "Authorization: Bearer jane", "Accept: "+accept)
				const message = `pods is forbidden: User \"jane\" cannot`
				if status != 403 || !strings.Contains(body, message) && !strings.Contains(body, strings.ReplaceAll(message, `\`, "")) {
					t.Errorf("%s %q: %d %s", accept, query, status, body)
				}
				if b.upstream.count() != before {
					t.Errorf("%s %q: went upstream", accept, query)
				}
			}
		}
	})
}

func TestOverloadIsRetryable(t *testing.T) {
	b := newGatewayBench(t, func(o *Options) { o.Policy.Limits.InFlight = 1 })
	held := b.gateway.Serve(t.Context(), request("GET /apis"))
	status, _, h := b.do("GET /apis")
	if status != 429 || h.Get("Retry-After") != "1" {
		t.Errorf("%d %v", status, h)
	}
	held.Done(0, nil)
	if status, _, _ := b.do("GET /apis"); status != 200 {
		t.Errorf("after the end of the other: %d", status)
	}
}

func TestStaleResponsesSaySo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		if _, _, h := b.do("GET /api/v1/pods?resourceVersion=0"); h.Has("Age") {
			t.Errorf("fresh answer: %v", h)
		}
		b.source.SetDown(true)
		time.Sleep(2 * time.Minute)
		_, body, h := b.do("GET /api/v1/pods?resourceVersion=0")
		if names(t, body) != "a" || h.Get("Age") == "" || !strings.HasPrefix(h.Get("Warning"), "110 ") {
			t.Errorf("stale answer: %v", h)
		}
	})
}

func TestWatchBeforeHistoryGoesOnUpstream(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, func(o *Options) { o.Policy.Limits.Resumed = 3 }) // two for each user
		b.source.NoTimeouts()
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		b.source.Bump(10)
		const old = "GET /api/v1/pods?watch=true&resourceVersion=101"
		first := b.gateway.Serve(t.Context(), request(old))
		second := b.gateway.Serve(t.Context(), request(old))
		if b.upstream.count() != 2 {
			t.Fatalf("%d watches went upstream, want 2", b.upstream.count())
		}
		third := b.gateway.Serve(t.Context(), request(old))
		if third.Stream == nil || b.upstream.count() != 2 {
			t.Errorf("over the limit: %d upstream, %+v", b.upstream.count(), third)
		}
		third.Stream.Stop()
		third.Done(0, nil)
		first.Done(0, nil)
		b.gateway.Serve(t.Context(), request(old)).Done(0, nil)
		if b.upstream.count() != 3 {
			t.Errorf("after the end of one: %d upstream", b.upstream.count())
		}
		second.Done(0, nil)
		if n := b.gateway.slots.resumed.InUse(); n != 0 {
			t.Errorf("%d places are not given back", n)
		}
		now := b.gateway.Serve(t.Context(), request("GET /api/v1/pods?watch=true&resourceVersion=111"))
		if now.Stream == nil || b.upstream.count() != 3 || b.gateway.slots.resumed.InUse() != 0 {
			t.Errorf("a watch within history: %d upstream", b.upstream.count())
		}
		now.Stream.Stop()
		now.Done(0, nil)
	})
}

// endlessStream is a forwarded response that does not end by itself.
type endlessStream struct{ stopped bool }

func (s *endlessStream) Start(api.StreamWriter) {}
func (s *endlessStream) Stop()                  { s.stopped = true }

type closeRecorder struct{ closed bool }

func (w *closeRecorder) WriteFrames([][]byte) error { return nil }
func (w *closeRecorder) Close()                     { w.closed = true }
func (w *closeRecorder) Abort()                     { w.closed = true }

func TestDrainEndsForwardedStreams(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		b.upstream.response = func(*api.Request) *api.Response { return &api.Response{Status: 200, Stream: &endlessStream{}} }
		var open, left, late closeRecorder
		a := b.gateway.Serve(t.Context(), request("GET /api/v1/namespaces/default/pods/a/log?follow=true"))
		a.Stream.Start(&open)
		gone := b.gateway.Serve(t.Context(), request("GET /api/v1/namespaces/default/pods/a/log?follow=true"))
		gone.Stream.Start(&left)
		gone.Stream.Stop()
		b.gateway.Drain(t.Context(), 0)
		b.gateway.Serve(t.Context(), request("GET /api/v1/namespaces/default/pods/a/log?follow=true")).Stream.Start(&late)
		synctest.Wait()
		if !open.closed || left.closed || !late.closed {
			t.Errorf("open %v, left before %v, begun after %v", open.closed, left.closed, late.closed)
		}
	})
}

// TestUnauthorizedEndsHTTP2ConnectionsOfStrangersOnly: a 401 of a server behind the upstream
// (services/proxy) is a response to a client that is known, and no reason to end the connection
// that carries the client's watches.
func TestUnauthorizedEndsHTTP2ConnectionsOfStrangersOnly(t *testing.T) {
	b := newGatewayBench(t, nil)
	b.upstream.response = func(*api.Request) *api.Response { return &api.Response{Status: 401} }
	for token, want := range map[string]bool{"admin": false, "bad": true} {
		r := request("GET /api/v1/namespaces/default/services/s/proxy/", "Authorization: Bearer "+token)
		r.Proto = "HTTP/2.0"
		resp := b.gateway.Serve(t.Context(), r)
		if resp.Status != 401 || resp.Header.Has("Connection") != want {
			t.Errorf("%s: %d %v", token, resp.Status, resp.Header)
		}
		resp.Done(0, nil)
	}
}
