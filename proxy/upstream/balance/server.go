package balance

import (
	"context"
	"errors"
	"io"
	"log/slog"
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

// Server is one of several API servers of a cluster. It is safe for concurrent use.
type Server struct {
	endpoint
	set     *Set
	log     *slog.Logger
	host    string // what requests say in their Host
	rank    uint64 // random: of two that are equal otherwise the lower is preferred
	pools   []*pool.Pool
	health  health.Server
	metrics serverMetrics
	checker checker

	short, long atomic.Int64 // requests in progress, by whether they last

	mu struct {
		sync.Mutex
		attempts map[*attempt]struct{}
		retired  bool
		giveUp   *time.Timer // while it is unresponsive
	}
}

// endpoint is the address of a server.
type endpoint struct {
	url   *url.URL // scheme and host
	spare bool     // it is for when there is no other
}

// checker is the state of the goroutine that checks a server.
type checker struct {
	kick    chan struct{} // makes the next check come at once
	stop    context.CancelFunc
	doubted bool // the last check was not responded to
}

// A server that has recovered gets less than its share for rampTime: leastShare of it at first.
const (
	rampTime   = 10 * time.Second
	leastShare = 0.1
)

// Host returns the host and port of the server.
func (s *Server) Host() string { return s.url.Host }

// Standing returns what checks of the server have found.
func (s *Server) Standing() health.Standing { return s.health.Standing() }

// load is how much there is to do for the server, of one kind, for its share.
func (s *Server) load(long bool, now time.Time) float64 {
	n := s.short.Load()
	if long {
		n = s.long.Load()
	}
	share := 1.0
	if since := s.health.ReadySince(); since != 0 {
		share = max(leastShare, min(1, float64(now.UnixNano()-since)/float64(rampTime)))
	}
	return float64(n+1) / share
}

// class is how a server compares with others: one of a lower class is always chosen before it.
func (s *Server) class() int {
	class := 2 * int(s.Standing())
	if s.spare {
		class++
	}
	return class
}

// isBetter reports whether feeds should prefer s to other: a server that has been ready for longer
// has more history.
func (s *Server) isBetter(other *Server) bool {
	class, classOther := s.class(), other.class()
	since, sinceOther := s.health.ReadySince(), other.health.ReadySince()
	return class < classOther || class == classOther && (since < sinceOther || since == sinceOther && s.rank < other.rank)
}

// responded records a response to a request, or to a check.
func (s *Server) responded(check bool) {
	s.health.Contact(s.set.Health.Now())
	if !check && s.Standing() >= health.Down {
		s.check()
	}
}

// failed records a request without a response.
func (s *Server) failed(err error, connected bool) {
	if !connected || health.Unconnected(err) {
		s.become(health.Down, err)
	}
	s.check()
}

// check asks for a check of the server soon.
func (s *Server) check() {
	select {
	case s.checker.kick <- struct{}{}:
	default:
	}
}

// become records what was found, and acts on it.
func (s *Server) become(next health.Standing, why error) {
	s.mu.Lock()
	if s.mu.retired {
		s.mu.Unlock()
		return
	}
	was, changed := s.health.Enter(next, s.set.Health.Now())
	if !changed {
		s.mu.Unlock()
		return
	}
	if s.mu.giveUp != nil {
		s.mu.giveUp.Stop()
		s.mu.giveUp = nil
	}
	if next == health.Unresponsive {
		s.mu.giveUp = time.AfterFunc(s.set.writeTimeout(), s.abandon)
	}
	s.mu.Unlock()

	s.report(was, next, why)
	s.set.prefer()
	if next == health.Unresponsive {
		// A write that was sent may still get a response, and must not be sent again.
		s.cancel(health.ErrSilent, func(a *attempt) bool { return a.repeatable || !a.connected.Load() })
	}
	if next >= health.Down {
		s.set.reportDown()
	}
}

// report counts and logs a change.
func (s *Server) report(was, next health.Standing, why error) {
	up := 0.0
	if next == health.Ready {
		up = 1
	}
	s.metrics.up.Set(up)
	if was == health.Ready {
		s.metrics.ejections.Inc()
		s.log.Warn("an API server is "+next.String()+", requests go to others", "error", why)
		return
	}
	s.log.Info("an API server is "+next.String(), "before", was.String(), "error", why)
}

// abandon ends all that waits for a server that stays unresponsive.
func (s *Server) abandon() {
	if s.Standing() == health.Unresponsive {
		s.cancel(health.ErrSilent, func(*attempt) bool { return true })
	}
}

// cancel cancels the attempts that match. Connections that were upgraded stay.
func (s *Server) cancel(cause error, matches func(*attempt) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.mu.attempts {
		if !a.upgraded.Load() && matches(a) {
			a.cancel(cause)
		}
	}
}

func (s *Server) begin(a *attempt) {
	if !a.check {
		s.metrics.requests.Inc()
		s.metrics.outstanding.Inc()
		s.inProgress(a).Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.attempts[a] = struct{}{}
}

func (s *Server) end(a *attempt) {
	if !a.check {
		s.metrics.outstanding.Dec()
		s.inProgress(a).Add(-1)
	}
	s.mu.Lock()
	delete(s.mu.attempts, a)
	idle := s.mu.retired && len(s.mu.attempts) == 0
	s.mu.Unlock()
	if idle {
		s.close()
	}
}

func (s *Server) inProgress(a *attempt) *atomic.Int64 {
	if a.isLong() {
		return &s.long
	}
	return &s.short
}

// retire is called when the cluster no longer has the server. Requests in progress continue, except
// feeds.
func (s *Server) retire() {
	s.mu.Lock()
	s.mu.retired = true
	if s.mu.giveUp != nil {
		s.mu.giveUp.Stop()
	}
	idle := len(s.mu.attempts) == 0
	s.mu.Unlock()
	s.checker.stop()
	s.log.Info("an API server is none of the cluster's any more")
	s.cancel(errMoved, func(a *attempt) bool { return a.isFeed() })
	if idle {
		s.close()
	}
}

// close releases what a retired server has left.
func (s *Server) close() {
	for _, p := range s.pools {
		p.CloseIdleConnections()
	}
	s.set.forget(s)
}

// attempt is one request to one server.
type attempt struct {
	server     *Server
	style      int // index of Options.Styles
	repeatable bool
	check      bool // it only asks for the server's health
	ctx        context.Context
	cancel     context.CancelCauseFunc
	began      time.Time
	canceled   bool      // it failed because it was canceled
	once       sync.Once // finish
	progress
}

// progress is how far a request has come.
type progress struct {
	connected atomic.Bool // it has a connection, and may be sent on that
	reused    atomic.Bool // which there was before
	responded atomic.Bool // it has the head of the response
	upgraded  atomic.Bool
}

// isFeed reports whether the request is for the cache.
func (a *attempt) isFeed() bool { return a.server.set.Styles[a.style].Feed }

// isLong reports whether most requests of this kind last.
func (a *attempt) isLong() bool { return !a.server.set.Styles[a.style].HTTP1 }

// send sends the request and waits for the head of the response.
func (a *attempt) send(req *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { a.connected.Store(false) }, // again, see pool.Transport
		GotConn: func(info httptrace.GotConnInfo) {
			a.reused.Store(info.Reused)
			a.connected.Store(true)
		},
	}
	req = req.WithContext(httptrace.WithClientTrace(a.ctx, trace))
	a.address(req)
	resp, err := a.server.pools[a.style].RoundTrip(req)
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
			named = s.url.Host
		}
		u.Opaque = "//" + named + rest
	}
	u.Scheme, u.Host = s.url.Scheme, s.url.Host
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

// attempt begins a request over connections of a style.
func (s *Server) attempt(req *http.Request, style int, repeatable, check bool) *attempt {
	a := &attempt{
		server: s, style: style, repeatable: repeatable, check: check,
		began: s.set.Health.Now(),
	}
	a.ctx, a.cancel = context.WithCancelCause(req.Context())
	s.begin(a)
	return a
}

// request returns a request of the gateway's own.
func (s *Server) request(ctx context.Context, path string) *http.Request {
	u := *s.url
	u.Path = path
	return (&http.Request{
		Method: http.MethodGet, URL: &u, Host: s.host, Header: http.Header{"User-Agent": {s.set.Agent}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
}
