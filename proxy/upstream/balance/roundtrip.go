package balance

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// balancer is an http.RoundTripper over several servers. A request that a server did not get, and a
// read that it did not respond to, goes to another, each at most once. A write that may have been
// sent is not sent again.
type balancer struct {
	set   *Set
	style int // index of Options.Styles
}

// RoundTripper sends requests over connections of a style, an index of Options.Styles.
func (s *Set) RoundTripper(style int) http.RoundTripper { return &balancer{s, style} }

// RoundTrip implements http.RoundTripper.
func (b *balancer) RoundTrip(req *http.Request) (*http.Response, error) {
	r, _ := req.Context().Value(routeKey{}).(*route)
	if r == nil {
		r = &route{}
	}
	if r.only != nil {
		r.tried.Store(true)
		return r.only.attempt(req, b.style, true, true).send(req)
	}
	repeatable := r.repeatable || isRepeatable(req)
	t := &tour{
		balancer: b, req: req, body: &sharedBody{req: req}, repeatable: repeatable,
		preferred: b.set.Styles[b.style].Feed || r.preferred || repeatable && mayBeStale(req.URL.RawQuery),
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
	// resp and err are the result of the last server, or of an earlier one if that is better.
	resp *http.Response
	err  error
}

// next asks the next server. It returns false when there is none, or need not be.
func (t *tour) next() (more bool) {
	s := t.set.choose(!t.set.Styles[t.style].HTTP1, t.preferred, t.tried)
	if s == nil {
		return false
	}
	if n := len(t.tried); n > 0 {
		t.tried[n-1].metrics.retries.Inc()
	}
	t.tried = append(t.tried, s)
	a := s.attempt(t.req, t.style, t.repeatable, false)
	out, ok := t.body.attach(t.req)
	if !ok {
		a.finish()
		return false
	}
	resp, err := a.send(out)
	if err != nil {
		more = t.failed(a, err)
	} else {
		if more = a.isRejected(resp); t.resp != nil {
			_ = t.resp.Body.Close()
		}
		t.resp = resp
	}
	return more && t.req.Context().Err() == nil
}

// failed records that a got no response, and reports whether another server may be tried.
func (t *tour) failed(a *attempt, err error) (more bool) {
	t.err = err
	if !a.canceled {
		a.server.failed(err, a.connected.Load())
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

// isRepeatable reports whether a request only reads.
func isRepeatable(req *http.Request) bool {
	return pool.Safe(req.Method) && req.Header["Upgrade"] == nil && (req.Body == nil || req.Body == http.NoBody) && !isProxied(req.URL)
}

// mayBeStale reports whether any version will do for a read. If it went to one server and then to
// another, the second response could be older.
func mayBeStale(query string) bool {
	if !strings.Contains(query, "resourceVersion=0") {
		return false
	}
	values, _ := url.ParseQuery(query)
	return values.Get("resourceVersion") == "0"
}
