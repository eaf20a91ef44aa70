package proxy

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/flight"
)

// collapser answers most-recent reads of a source that cannot tell its current
// version: identical requests that arrive while one is under way share the next
// request, sent with the gateway's own credentials. Every caller was authorized
// for exactly these attributes before, so all have the same right to the answer.
//
// It is safe for concurrent use.
type collapser struct {
	flights flight.Group[collapseKey, *collapsed]
	// fetch sends the request with the gateway's own credentials.
	fetch func(ctx context.Context, r *api.Request) *api.Response
	// maxBody bounds what is kept of one answer, in bytes; larger ones are not
	// shared.
	maxBody int64
	now     func() time.Time

	mu struct {
		sync.Mutex
		// large remembers until when a request is known to have an answer above
		// maxBody, so that it is not fetched in vain. At most maxLarge keys.
		large map[collapseKey]time.Time
	}
}

const (
	maxLarge = 1024
	largeFor = time.Minute
)

// collapseKey is what two requests must share to get the same bytes.
type collapseKey struct {
	path, query, accept, acceptEncoding string
	pretty                              bool
}

// collapsed is one answer, shared read-only.
type collapsed struct {
	status int
	header api.Header
	body   pieces
}

// response is the answer for one of those who share it.
func (a *collapsed) response() *api.Response {
	header := make(api.Header, len(a.header))
	copy(header, a.header)
	resp := &api.Response{Status: a.status, Header: header}
	switch len(a.body.all) {
	case 0:
	case 1:
		resp.Body = a.body.all[0]
	default:
		resp.BodyTo, resp.Length = &a.body, a.body.size
	}
	return resp
}

var errNotCollapsible = errors.New("the answer is too large to share")

func newCollapser(maxBody int64, now func() time.Time, fetch func(context.Context, *api.Request) *api.Response) *collapser {
	c := &collapser{fetch: fetch, maxBody: maxBody, now: now}
	c.mu.large = make(map[collapseKey]time.Time)
	return c
}

// do returns an answer to r that was read upstream after r arrived. An error
// means that r must be forwarded on its own.
func (c *collapser) do(ctx context.Context, r *api.Request, pretty bool) (*api.Response, error) {
	key := collapseKey{r.RawPath, r.RawQuery, r.Header.Get("Accept"), r.Header.Get("Accept-Encoding"), pretty}
	if c.knownLarge(key) {
		return nil, errNotCollapsible
	}
	request := collapsedRequest(r)
	answer, _, err := c.flights.Do(ctx, key, func(ctx context.Context) (*collapsed, error) {
		answer, err := c.read(c.fetch(ctx, request))
		if errors.Is(err, errNotCollapsible) {
			c.rememberLarge(key)
		}
		return answer, err
	})
	if err != nil {
		return nil, err
	}
	return answer.response(), nil
}

// collapsedRequest is r without anything of the one who sent it: the answer
// goes to others, too.
func collapsedRequest(r *api.Request) *api.Request {
	shared := &api.Request{
		Method: r.Method, Path: r.Path, RawPath: r.RawPath, RawQuery: r.RawQuery,
		Host: r.Host, Proto: r.Proto, Listener: r.Listener,
	}
	for _, name := range []string{"Accept", "Accept-Encoding", "User-Agent"} {
		if v := r.Header.Get(name); v != "" {
			shared.Header.Add(name, v)
		}
	}
	return shared
}

// read takes the whole answer, up to the bound.
func (c *collapser) read(resp *api.Response) (*collapsed, error) {
	answer := &collapsed{status: resp.Status, body: pieces{max: c.maxBody}}
	for _, f := range resp.Header {
		// Each client gets an Audit-Id of its own.
		if f.Name != "Audit-Id" && f.Name != "Content-Length" && f.Name != "Date" {
			answer.header = append(answer.header, f)
		}
	}
	if resp.Stream != nil {
		// A long-running answer cannot be shared; nothing was started yet.
		resp.Stream.Stop()
		return nil, errNotCollapsible
	}
	if resp.BodyTo == nil {
		answer.body.all = [][]byte{resp.Body}
		finish(resp, int64(len(resp.Body)), nil)
		return answer, nil
	}
	if resp.Length > c.maxBody {
		finish(resp, 0, errNotCollapsible)
		return nil, errNotCollapsible
	}
	if resp.Length > 0 {
		answer.body.all = [][]byte{make([]byte, 0, resp.Length)}
	}
	n, err := resp.BodyTo.WriteTo(&answer.body)
	finish(resp, n, err)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func finish(resp *api.Response, n int64, err error) {
	if resp.Done != nil {
		resp.Done(n, err)
	}
}

func (c *collapser) knownLarge(key collapseKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, ok := c.mu.large[key]
	if ok && c.now().After(until) {
		delete(c.mu.large, key)
		return false
	}
	return ok
}

func (c *collapser) rememberLarge(key collapseKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.large) >= maxLarge {
		clear(c.mu.large)
	}
	c.mu.large[key] = c.now().Add(largeFor)
}

// pieces collects up to max bytes and fails beyond. Upstream tells the length of
// hardly any list, and a slice that grows to tens of megabytes is copied several
// times on the way.
type pieces struct {
	all  [][]byte
	size int64
	max  int64
}

const (
	firstPiece   = 32 << 10
	largestPiece = 1 << 20
)

// Write implements io.Writer.
func (w *pieces) Write(p []byte) (int, error) {
	if w.size+int64(len(p)) > w.max {
		return 0, errNotCollapsible
	}
	w.size += int64(len(p))
	for n := len(p); ; {
		if last := len(w.all) - 1; last >= 0 {
			piece := w.all[last]
			k := min(len(p), cap(piece)-len(piece))
			w.all[last] = append(piece, p[:k]...)
			p = p[k:]
		}
		if len(p) == 0 {
			return n, nil
		}
		next := firstPiece
		if last := len(w.all) - 1; last >= 0 {
			next = min(2*cap(w.all[last]), largestPiece)
		}
		w.all = append(w.all, make([]byte, 0, next))
	}
}

// WriteTo implements io.WriterTo. It may be called any number of times at once.
func (w *pieces) WriteTo(dst io.Writer) (written int64, err error) {
	for _, piece := range w.all {
		n, err := dst.Write(piece)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
