package upstream

import (
	"context"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/inprocess"
)

// InProcess is an upstream in this process. It is called without a connection in
// between, and takes this client's word for who a request is from.
type InProcess struct {
	// Handler serves requests as kube-apiserver does.
	Handler http.Handler
	// WithUser returns a context by which Handler takes a request for u's. With nil
	// it is the gateway's own, which may do everything.
	WithUser func(ctx context.Context, u user.Info) context.Context
	// Track is for ImmediateSource: the watch that Handler serves with the returned
	// context is the one that Progress knows.
	Track func(ctx context.Context) (context.Context, Progress)
}

// Progress knows one watch of an upstream in this process.
type Progress interface {
	// Current is what source.ImmediateSource.Progress returns, of this watch.
	Current(ctx context.Context) (last, current uint64, shared bool, err error)
}

// localHost is the address of an upstream in this process, which nobody dials.
const localHost = "in-process"

// local is the upstream in this process.
type local struct {
	*InProcess
	transport *inprocess.Transport
	whole     http.RoundTripper // transport.Whole
}

// openLocal makes what it takes to talk to an upstream in this process.
func (c *Client) openLocal(p *InProcess) {
	c.base = &url.URL{Scheme: "https", Host: localHost}
	transport := inprocess.New(p.Handler, c.log)
	c.local = &local{p, transport, transport.Whole()}
	own := ownTransport{c.local}
	c.own.shared, c.own.narrow, c.own.short, c.own.once, c.feed = own, own, own, own, own
	anonymous := c.local.transport
	c.anonymous.shared, c.anonymous.narrow, c.anonymous.short, c.anonymous.once = anonymous, anonymous, anonymous, anonymous
}

// request completes a forwarded request: of a connection the handler sees what it
// would see of the client's.
func (l *local) request(x *forwarding, req *http.Request) *http.Request {
	if x.r.Host != "" {
		req.Host = x.r.Host
	}
	req.RemoteAddr = x.r.RemoteAddr
	// Whatever breaks now, the handler may have seen the request.
	x.sent.Store(true)
	ctx := x.ctx
	if x.cred.User != nil {
		ctx = l.WithUser(ctx, x.cred.User)
	}
	return req.WithContext(ctx)
}

// writesOne reports whether a request changes one object, by which it is soon over and
// answered with that.
func writesOne(info *api.RequestInfo) bool { return info.IsWrite() && info.Verb != "deletecollection" }

// ownTransport sends requests as the gateway.
type ownTransport struct{ l *local }

// RoundTrip implements http.RoundTripper.
func (t ownTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.l.transport.RoundTrip(req.WithContext(t.l.WithUser(req.Context(), nil)))
}

// promptSource is the source of an upstream in this process.
type promptSource struct {
	*Source
	mu struct {
		sync.Mutex
		watches map[feedKey]Progress // at most one for each collection
	}
}

type feedKey struct {
	resource schema.GroupVersionResource
	encoding api.Encoding
}

var _ source.ImmediateSource = (*promptSource)(nil)

// ImmediateSource is the Source of an upstream in this process, which must have
// InProcess.Track.
func (c *Client) ImmediateSource() source.ImmediateSource {
	p := &promptSource{Source: c.Source()}
	p.mu.watches = make(map[feedKey]Progress)
	return p
}

// Watch implements source.Source.
func (s *promptSource) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	if opts.Probe {
		return s.Source.Watch(ctx, res, enc, opts, handle)
	}
	ctx, progress := s.c.local.Track(ctx)
	key := feedKey{res.GroupVersionResource, enc}
	s.mu.Lock()
	s.mu.watches[key] = progress
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.mu.watches[key] == progress {
			delete(s.mu.watches, key)
		}
	}()
	return s.Source.Watch(ctx, res, enc, opts, handle)
}

// Progress implements source.ImmediateSource.
func (s *promptSource) Progress(ctx context.Context, res *source.Resource, enc api.Encoding) (last, current uint64, shared bool, err error) {
	s.mu.Lock()
	progress := s.mu.watches[feedKey{res.GroupVersionResource, enc}]
	s.mu.Unlock()
	if progress == nil {
		return 0, 0, false, source.ErrUnsupported
	}
	return progress.Current(ctx)
}
