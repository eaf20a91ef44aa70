package upstream

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

	"golang.org/x/net/http2"
)

// balanced is an http.RoundTripper over several servers. What a server did not get, and a
// read that it did not answer, goes to another, each at most once. A write that may have
// been sent is not sent again.
type balanced struct {
	set   *servers
	style int // index of styles
	// feed: these requests go to the preferred server. long: most of them last.
	feed, long bool
}

// routing is what the context of a request says of its way.
type routing struct {
	// only is the server that it is for, whatever its standing.
	only *apiServer
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
	preferred := b.feed || way.preferred || repeatable && mayBeStale(req.URL.RawQuery)
	body := hold(req)
	var room [4]*apiServer
	tried := room[:0]
	// What an earlier one said, in case that there is none better.
	var last *http.Response
	lastErr := errNoServers
	if len(*b.set.all.Load()) > 0 {
		lastErr = errSilent
	}
	for {
		s := b.set.choose(b, preferred, tried)
		if s == nil {
			break
		}
		if n := len(tried); n > 0 {
			tried[n-1].counts.retries.Inc()
		}
		tried = append(tried, s)
		a := b.attempt(s, req, repeatable, false)
		out, ok := body.attach(req)
		if !ok {
			a.finish()
			break
		}
		resp, err := a.send(out)
		again := false
		if err == nil {
			again = a.refusedBy(resp)
		} else {
			again = a.unsent(err) || repeatable
			lastErr = err
			if !a.ended && !body.broken() {
				s.failed(err, a.connected.Load())
			}
		}
		if last != nil && (err == nil || !again) {
			_ = last.Body.Close()
			last = nil
		}
		if err == nil {
			last = resp
		}
		if !again || req.Context().Err() != nil {
			break
		}
	}
	body.release()
	if last != nil {
		return last, nil
	}
	return nil, lastErr
}

// mayRepeat reports whether a request only reads.
func mayRepeat(req *http.Request) bool {
	return safe(req.Method) && req.Header["Upgrade"] == nil && (req.Body == nil || req.Body == http.NoBody) && !proxied(req.URL)
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
	server     *apiServer
	balanced   *balanced
	feed, long bool
	repeatable bool
	look       bool // it only asks for the server's health
	ctx        context.Context
	cancel     context.CancelCauseFunc
	connected  atomic.Bool // it has a connection, and may be sent
	upgraded   atomic.Bool
	replays    replays
	ended      bool // it failed because it was cancelled
	once       sync.Once
}

func (b *balanced) attempt(s *apiServer, req *http.Request, repeatable, look bool) *attempt {
	a := &attempt{server: s, balanced: b, feed: b.feed, long: b.long, repeatable: repeatable, look: look}
	a.ctx, a.cancel = context.WithCancelCause(req.Context())
	s.begin(a)
	return a
}

// send sends the request and waits for the head of the response.
func (a *attempt) send(req *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		a.connected.Store(true)
		a.replays.sent(a.cancel)
	}}
	req = req.WithContext(httptrace.WithClientTrace(a.ctx, trace))
	u := *req.URL
	if rest, ok := strings.CutPrefix(u.Opaque, "//"+u.Host); ok {
		// What is not written to a proxy must be the same as Host.
		named := a.server.host
		if a.server.set.c.absolute {
			named = a.server.base.Host
		}
		u.Opaque = "//" + named + rest
	}
	u.Scheme, u.Host = a.server.base.Scheme, a.server.base.Host
	req.URL, req.Host = &u, a.server.host
	resp, err := a.server.pools[a.balanced.style].RoundTrip(req)
	if err != nil {
		a.ended = a.ctx.Err() != nil
		err = causeOf(a.ctx, err)
		a.finish()
		return nil, err
	}
	a.server.answered(a.look)
	a.hand(resp)
	return resp, nil
}

// unsent reports whether the server surely did not see the request, which failed with err.
func (a *attempt) unsent(err error) bool {
	var stream http2.StreamError
	return !a.connected.Load() || unconnected(err) ||
		errors.As(err, &stream) && stream.Code == http2.ErrCodeRefusedStream
}

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
		b.err = causeOf(b.a.ctx, err)
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
