package balance

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// balancer is an http.RoundTripper over several servers. A request that a server did not get, and a read
// that it did not respond to, goes to another, each at most once. A write that may have been sent is not
// sent again.
type balancer struct {
	set   *Set
	style int // index of Options.Styles
	// feed requests go to the preferred server. Most long ones last.
	feed, long bool
}

// RoundTripper sends requests over connections of a style, an index of Options.Styles.
func (s *Set) RoundTripper(style int) http.RoundTripper {
	of := &s.Styles[style]
	return &balancer{set: s, style: style, feed: of.Feed, long: !of.HTTP1}
}

// route is what the context of a request says of where it goes.
type route struct {
	only       *Server // whatever its standing
	preferred  bool    // to the server of the feeds if possible
	repeatable bool    // the request changes nothing, though its method may

	// tried tells, for only, that the request has come to where connections are made.
	tried atomic.Bool
}

type routeKey struct{}

func withRoute(ctx context.Context, r *route) context.Context {
	return context.WithValue(ctx, routeKey{}, r)
}

// Only sends requests with the returned context to s, whatever its standing.
func (s *Server) Only(ctx context.Context) context.Context { return withRoute(ctx, &route{only: s}) }

// Preferred sends requests with the returned context to the server of the feeds if possible, unless ctx
// says already where they go.
func Preferred(ctx context.Context) context.Context {
	if ctx.Value(routeKey{}) != nil {
		return ctx
	}
	return withRoute(ctx, &route{preferred: true})
}

// Repeatable says that requests with the returned context change nothing, though their method may.
func Repeatable(ctx context.Context) context.Context {
	return withRoute(ctx, &route{repeatable: true})
}

// RoundTrip implements http.RoundTripper.
func (b *balancer) RoundTrip(req *http.Request) (*http.Response, error) {
	r, _ := req.Context().Value(routeKey{}).(*route)
	if r == nil {
		r = &route{}
	}
	if r.only != nil {
		r.tried.Store(true)
		return b.attempt(r.only, req, true, true).send(req)
	}
	repeatable := r.repeatable || isRepeatable(req)
	t := &tour{
		balancer: b, req: req, body: &sharedBody{req: req}, repeatable: repeatable,
		preferred: b.feed || r.preferred || repeatable && mayBeStale(req.URL.RawQuery),
	}
	t.tried = t.room[:0]
	if t.err = ErrNoServers; len(b.set.Servers()) > 0 {
		t.err = health.ErrSilent
	}
	for t.next() {
	}
	t.body.release()
	if t.resp != nil {
		return t.resp, nil
	}
	return nil, t.err
}

// tour is one request's way from server to server.
type tour struct {
	*balancer
	req                   *http.Request
	body                  *sharedBody
	repeatable, preferred bool

	tried   []*Server
	room    [4]*Server // of tried
	retries int        // how often a server was asked once more
	until   time.Time  // when no other server is asked any more, once one was behind
	// What the last server said, or an earlier one if that is better.
	resp *http.Response
	err  error
}

// lagPatience is how long all other servers may take for a read of a version that one has waited for in
// vain, for 3 s (k8s.io/apiserver/pkg/storage/cacher). A server that has that version responds at once. If
// none has it, the client waits little longer than for a single server.
const lagPatience = time.Second

var errLate = errors.New("another API server waited for the version in vain")

// next asks the next server. It returns false when there is none, or need not be.
func (t *tour) next() (more bool) {
	s := t.set.choose(t.balancer, t.preferred, t.tried)
	if s == nil || !t.until.IsZero() && !time.Now().Before(t.until) {
		return false
	}
	if n := len(t.tried); n > 0 {
		t.tried[n-1].counts.retries.Inc()
	}
	t.tried = append(t.tried, s)
	a := t.attempt(s, t.req, t.repeatable, false)
	out, ok := t.body.attach(t.req)
	if !ok {
		a.finish()
		return false
	}
	if !t.until.IsZero() {
		a.late = time.AfterFunc(time.Until(t.until), func() { a.cancel(errLate) })
	}
	resp, err := a.send(out)
	if err != nil {
		more = t.failed(a, err)
	} else {
		if more = t.rejected(a, resp); t.resp != nil {
			_ = t.resp.Body.Close()
		}
		t.resp = resp
	}
	return more && t.req.Context().Err() == nil
}

// failed records that a got no response, and reports whether another server may be asked.
func (t *tour) failed(a *attempt, err error) (more bool) {
	t.err = err
	if !a.canceled && !t.body.isBroken() {
		a.server.failed(err, a.connected.Load(), a.written.Load())
	}
	if !t.repeatable && a.connected.Load() && !pool.Unprocessed(err) {
		if t.resp != nil { // an earlier response counts no more
			_ = t.resp.Body.Close()
			t.resp = nil
		}
		return false
	}
	if errors.Is(err, errLost) && t.retries < len(t.room) {
		t.retries++
		t.tried = t.tried[:len(t.tried)-1] // it has new connections
	}
	return true
}

// rejected reports whether the server did not do what a asked, but another may.
func (t *tour) rejected(a *attempt, resp *http.Response) (more bool) {
	notice, rejected := a.rejectedBy(resp)
	if rejected && notice == noticeBehind && t.until.IsZero() {
		t.until = time.Now().Add(lagPatience)
	}
	return rejected
}

// isRepeatable reports whether a request only reads.
func isRepeatable(req *http.Request) bool {
	return pool.Safe(req.Method) && req.Header["Upgrade"] == nil && (req.Body == nil || req.Body == http.NoBody) && !isProxied(req.URL)
}

// isProxied reports whether kube-apiserver passes a request to a program that may do anything with it.
func isProxied(u *url.URL) bool {
	path := u.Opaque
	if path == "" {
		path = u.Path
	} else if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	return strings.Contains(path, "/proxy/") || strings.HasSuffix(path, "/proxy")
}

// mayBeStale reports whether any version will do for a read. If it went to one server and then to another,
// the second response could be older.
func mayBeStale(query string) bool {
	if !strings.Contains(query, "resourceVersion=0") {
		return false
	}
	values, _ := url.ParseQuery(query)
	return values.Get("resourceVersion") == "0"
}

// attempt is one request to one server.
type attempt struct {
	server     *Server
	balancer   *balancer
	repeatable bool
	check      bool // it only asks for the server's health
	feed, long bool
	ctx        context.Context
	cancel     context.CancelCauseFunc
	began      time.Time
	sends      *pool.SendLimit
	late       *time.Timer // cancels it before its response, nil if nothing does
	canceled   bool        // it failed because it was canceled
	once       sync.Once   // finish

	connected atomic.Bool // it has a connection, and may be sent on that
	reused    atomic.Bool // which there was before
	written   atomic.Bool // its head was, which is known a little later
	responded atomic.Bool // it has the head of the response
	upgraded  atomic.Bool
}

func (b *balancer) attempt(s *Server, req *http.Request, repeatable, check bool) *attempt {
	a := &attempt{
		server: s, balancer: b, feed: b.feed, long: b.long, repeatable: repeatable, check: check,
		began: s.set.Health.Now(), sends: pool.NewSendLimit(pool.MaxSendsEach),
	}
	a.ctx, a.cancel = context.WithCancelCause(req.Context())
	s.begin(a)
	return a
}

// send sends the request and waits for the head of the response.
func (a *attempt) send(req *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { a.connected.Store(false) }, // again, see pool.SendLimit
		GotConn: func(info httptrace.GotConnInfo) {
			a.reused.Store(info.Reused)
			a.connected.Store(true)
			a.sends.GotConn(info, a.cancel)
		},
		WroteHeaders: func() { a.written.Store(true) },
	}
	req = req.WithContext(httptrace.WithClientTrace(a.ctx, trace))
	a.address(req)
	resp, err := a.server.pools[a.balancer.style].RoundTrip(req)
	if a.late != nil && !a.late.Stop() && err == nil {
		_ = resp.Body.Close()
		err = errLate
	}
	if err != nil {
		a.canceled = a.ctx.Err() != nil
		err = health.Cause(a.ctx, err)
		a.finish()
		return nil, err
	}
	a.responded.Store(true)
	a.server.responded(a.check)
	a.wrap(resp)
	return resp, nil
}

// address addresses req to the server.
func (a *attempt) address(req *http.Request) {
	s, u := a.server, *req.URL
	if rest, ok := strings.CutPrefix(u.Opaque, "//"+u.Host); ok {
		// Unless it goes to a proxy it must be the same as Host.
		named := s.host
		if s.set.AbsoluteURLs {
			named = s.base.Host
		}
		u.Opaque = "//" + named + rest
	}
	u.Scheme, u.Host = s.base.Scheme, s.base.Host
	req.URL, req.Host = &u, s.host
}

// waits reports whether the request was sent, and waits for a response.
func (a *attempt) waits() bool { return a.connected.Load() && !a.responded.Load() }

// wrap makes the end of the response's body that of the attempt.
func (a *attempt) wrap(resp *http.Response) {
	if resp.Body == http.NoBody {
		a.finish()
		return
	}
	body := responseBody{ReadCloser: resp.Body, a: a}
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		a.upgraded.Store(true)
		resp.Body = &upgradedConn{body, conn}
		return
	}
	resp.Body = &body
}

// finish ends the attempt. It may be called more than once.
func (a *attempt) finish() {
	a.once.Do(func() {
		a.server.end(a)
		a.cancel(nil)
	})
}

// responseBody is the body of a server's response.
type responseBody struct {
	io.ReadCloser
	a   *attempt
	err error // of Read, final
}

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		s := b.a.server
		s.health.Contact(s.set.Health.Now())
	}
	if err != nil {
		b.err = health.Cause(b.a.ctx, err)
		b.a.finish()
	}
	return n, b.err
}

// Close implements io.Closer.
func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.a.finish()
	return err
}

// upgradedConn is the connection after an upgrade.
type upgradedConn struct {
	responseBody
	conn io.ReadWriteCloser
}

// Write implements io.Writer.
func (c *upgradedConn) Write(p []byte) (int, error) { return c.conn.Write(p) }

// CloseWrite ends one direction.
func (c *upgradedConn) CloseWrite() error {
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
