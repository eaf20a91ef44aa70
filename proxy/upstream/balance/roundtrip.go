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

// balanced is an http.RoundTripper over several servers. What a server did not get, and a
// read that it did not answer, goes to another, each at most once. A write that may have
// been sent is not sent again.
type balanced struct {
	set   *Set
	style int // index of styles
	// feed: these requests go to the preferred server. long: most of them last.
	feed, long bool
}

// routing is what the context of a request says of its way.
type routing struct {
	// only is the server that it is for, whatever its standing.
	only *Server
	// preferred: the server of the feeds is asked if it can be.
	preferred bool
	// repeatable: it changes nothing, though its method may.
	repeatable bool
	// tried tells, for only, that the request has come to where connections are made.
	tried atomic.Bool
}

type routingKey struct{}

func withRouting(ctx context.Context, r *routing) context.Context {
	return context.WithValue(ctx, routingKey{}, r)
}

// Only has requests with the returned context go to s, whatever its standing.
func (s *Server) Only(ctx context.Context) context.Context {
	return withRouting(ctx, &routing{only: s})
}

// Preferred has requests with the returned context go to the server of the feeds if that is possible,
// unless ctx says already where they go.
func Preferred(ctx context.Context) context.Context {
	if ctx.Value(routingKey{}) != nil {
		return ctx
	}
	return withRouting(ctx, &routing{preferred: true})
}

// Repeatable says that requests with the returned context change nothing, though their method may.
func Repeatable(ctx context.Context) context.Context {
	return withRouting(ctx, &routing{repeatable: true})
}

// RoundTripper sends requests of a style, an index of Options.Styles.
func (s *Set) RoundTripper(style int) http.RoundTripper {
	of := &s.Styles[style]
	return &balanced{set: s, style: style, feed: of.Feed, long: !of.HTTP1}
}

// RoundTrip implements http.RoundTripper.
func (b *balanced) RoundTrip(req *http.Request) (*http.Response, error) {
	way, _ := req.Context().Value(routingKey{}).(*routing)
	if way == nil {
		way = &routing{}
	}
	if way.only != nil {
		way.tried.Store(true)
		return b.attempt(way.only, req, true, true).send(req)
	}
	repeatable := way.repeatable || mayRepeat(req)
	t := &tour{
		balanced: b, req: req, body: hold(req), repeatable: repeatable,
		preferred: b.feed || way.preferred || repeatable && mayBeStale(req.URL.RawQuery),
	}
	t.tried = t.room[:0]
	if t.err = ErrNoServers; len(*b.set.all.Load()) > 0 {
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
	*balanced
	req                   *http.Request
	body                  *held
	repeatable, preferred bool

	tried []*Server
	room  [4]*Server // of tried
	// again is how often a server was asked once more.
	again int
	// until is when no other server is asked any more, once one was behind.
	until time.Time
	// What the last one said, or an earlier one, in case that there is none better.
	resp *http.Response
	err  error
}

// lagPatience is how long all other servers may take for a read of a version that one has
// waited for in vain, for 3 s (k8s.io/apiserver/pkg/storage/cacher). Who has that version
// answers at once; if nobody has, the client waits little longer than for a single server.
const lagPatience = time.Second

// next asks the next server. It returns false when there is none, or need not be.
func (t *tour) next() (more bool) {
	s := t.set.choose(t.balanced, t.preferred, t.tried)
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
	} else if more = t.refused(a, resp); t.resp != nil {
		_ = t.resp.Body.Close()
	}
	if err == nil {
		t.resp = resp
	}
	return more && t.req.Context().Err() == nil
}

// failed records that a got no answer, and reports whether another server may be asked.
func (t *tour) failed(a *attempt, err error) (more bool) {
	t.err = err
	if !a.ended && !t.body.broken() {
		a.server.failed(err, a.connected.Load(), a.written.Load())
	}
	if more = t.repeatable || a.unsent(err); !more {
		if t.resp != nil { // what was said before counts no more
			_ = t.resp.Body.Close()
			t.resp = nil
		}
		return false
	}
	if errors.Is(err, errForgotten) && t.again < len(t.room) {
		t.again++
		t.tried = t.tried[:len(t.tried)-1] // it has new connections
	}
	return true
}

// refused reports whether the server did not do what a asked, but another may.
func (t *tour) refused(a *attempt, resp *http.Response) (more bool) {
	notice, refused := a.refusedBy(resp)
	if refused && notice == noticeBehind && t.until.IsZero() {
		t.until = time.Now().Add(lagPatience)
	}
	return refused
}

// mayRepeat reports whether a request only reads.
func mayRepeat(req *http.Request) bool {
	return pool.Safe(req.Method) && req.Header["Upgrade"] == nil && (req.Body == nil || req.Body == http.NoBody) && !proxied(req.URL)
}

// proxied reports whether kube-apiserver hands a request to what may do anything with it.
func proxied(u *url.URL) bool {
	path := u.Opaque
	if path == "" {
		path = u.Path
	} else if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	return strings.Contains(path, "/proxy/") || strings.HasSuffix(path, "/proxy")
}

// mayBeStale reports whether any state will do for a read. Asked of one server and then of
// another, the second could be older.
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
	balanced   *balanced
	feed, long bool
	repeatable bool
	look       bool // it only asks for the server's health
	ctx        context.Context
	cancel     context.CancelCauseFunc
	began      time.Time
	connected  atomic.Bool // it has a connection, and may be sent on that
	reused     atomic.Bool // which there was before
	written    atomic.Bool // its head was, which is known a little later
	answered   atomic.Bool // it has the head of the response
	upgraded   atomic.Bool
	sends      *pool.Sends
	late       *time.Timer // ends it before its answer, nil if nothing does
	ended      bool        // it failed because it was cancelled
	once       sync.Once
}

func (b *balanced) attempt(s *Server, req *http.Request, repeatable, look bool) *attempt {
	a := &attempt{server: s, balanced: b, feed: b.feed, long: b.long, repeatable: repeatable, look: look, began: s.set.Health.Now(), sends: pool.NewSends(pool.MostSendsEach)}
	a.ctx, a.cancel = context.WithCancelCause(req.Context())
	s.begin(a)
	return a
}

// send sends the request and waits for the head of the response.
func (a *attempt) send(req *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { a.connected.Store(false) }, // again, see sends
		GotConn: func(info httptrace.GotConnInfo) {
			a.reused.Store(info.Reused)
			a.connected.Store(true)
			a.sends.Sent(info, a.cancel)
		},
		WroteHeaders: func() { a.written.Store(true) },
	}
	req = req.WithContext(httptrace.WithClientTrace(a.ctx, trace))
	u := *req.URL
	if rest, ok := strings.CutPrefix(u.Opaque, "//"+u.Host); ok {
		// What is not written to a proxy must be the same as Host.
		named := a.server.host
		if a.server.set.Absolute {
			named = a.server.base.Host
		}
		u.Opaque = "//" + named + rest
	}
	u.Scheme, u.Host = a.server.base.Scheme, a.server.base.Host
	req.URL, req.Host = &u, a.server.host
	resp, err := a.server.pools[a.balanced.style].RoundTrip(req)
	if a.late != nil && !a.late.Stop() && err == nil {
		_ = resp.Body.Close()
		err = errLate
	}
	if err != nil {
		a.ended = a.ctx.Err() != nil
		err = health.Cause(a.ctx, err)
		a.finish()
		return nil, err
	}
	a.answered.Store(true)
	a.server.answered(a.look)
	a.hand(resp)
	return resp, nil
}

// unsent reports whether the server surely did not see the request, which failed with err.
func (a *attempt) unsent(err error) bool { return !a.connected.Load() || pool.Unprocessed(err) }

// hand makes the response's body the one that ends the attempt.
func (a *attempt) hand(resp *http.Response) {
	if resp.Body == http.NoBody {
		a.finish()
		return
	}
	body := answerBody{ReadCloser: resp.Body, a: a}
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		a.upgraded.Store(true)
		resp.Body = &answerConn{body, conn}
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

// answerBody is the body of a server's response.
type answerBody struct {
	io.ReadCloser
	a   *attempt
	err error // of Read, final
}

// Read implements io.Reader.
func (b *answerBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.a.server.sign()
	}
	if err != nil {
		b.err = health.Cause(b.a.ctx, err)
		b.a.finish()
	}
	return n, b.err
}

// Close implements io.Closer.
func (b *answerBody) Close() error {
	err := b.ReadCloser.Close()
	b.a.finish()
	return err
}

// answerConn is what is left of a connection after an upgrade.
type answerConn struct {
	answerBody
	conn io.ReadWriteCloser
}

// Write implements io.Writer.
func (c *answerConn) Write(p []byte) (int, error) { return c.conn.Write(p) }

// CloseWrite ends one direction.
func (c *answerConn) CloseWrite() error {
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
