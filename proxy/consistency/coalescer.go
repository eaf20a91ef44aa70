package consistency

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache/freshness"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/response"
)

// Coalescer serves reads of the most recent state from a source that does not know its current
// version: identical requests that arrive while one is in flight share the next request, which has
// the gateway's own credentials. Every caller was authorized for exactly these attributes before, so
// all have the same right to the response.
//
// It is safe for concurrent use.
type Coalescer struct {
	flights flight.Group[Key, *Shared]
	// fetch sends the request with the gateway's own credentials.
	fetch func(ctx context.Context, r *api.Request) *api.Response
	// maxBody bounds the bytes of one response. Larger ones are not shared.
	maxBody atomic.Int64
	now     func() time.Time
	// held counts the bytes of responses that are being read, or written to the clients that
	// share them: at most maxResponses times maxBody.
	held atomic.Int64
	// shared counts the requests that got the response to another one.
	shared prometheus.Counter
	seed   maphash.Seed
	// large has the hashes of the keys of requests that are taken to have a response above maxBody,
	// which is then not fetched in vain.
	large recent[uint64]
}

const (
	largeFor = time.Minute
	// maxResponses is how many responses of the largest size are held at a time. Beyond it,
	// each request is forwarded and its response streamed.
	maxResponses = 4
)

// Key has what two requests must have in common to get the same bytes.
type Key struct {
	Path, Query, Accept, AcceptEncoding string
	Pretty                              bool
}

// KeyOf returns the key of a request. It refers to the memory of the request.
func KeyOf(r *api.Request, pretty bool) Key {
	return Key{r.RawPath, r.RawQuery, r.Header.Get("Accept"), r.Header.Get("Accept-Encoding"), pretty}
}

// Shared is a response that several clients share. It must not be changed.
type Shared struct {
	c      *Coalescer
	status int
	header api.Header
	body   []byte
	bytes  int64        // what body takes
	users  atomic.Int64 // clients whose response is not done
}

// Response returns the response for one of the clients that share it. Its bytes count until the last
// of them is done.
func (a *Shared) Response() *api.Response {
	if a.users.Add(1) == 1 {
		a.c.held.Add(a.bytes)
	}
	header := make(api.Header, len(a.header))
	copy(header, a.header)
	return &api.Response{Status: a.status, Header: header, Body: a.body, Done: func(int64, error) {
		if a.users.Add(-1) == 0 {
			a.c.held.Add(-a.bytes)
		}
	}}
}

// Why a response is not shared.
var (
	ErrTooLarge = errors.New("the response is too large to share")
	ErrNoRoom   = errors.New("coalesced responses already hold as many bytes as the limit allows")
)

// NewCoalescer returns a coalescer of responses of up to maxBody bytes, which fetch reads.
func NewCoalescer(maxBody int64, now func() time.Time, fetch func(context.Context, *api.Request) *api.Response) *Coalescer {
	c := &Coalescer{fetch: fetch, now: now, seed: maphash.MakeSeed()}
	c.maxBody.Store(maxBody)
	c.shared = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubeweir_collapsed_shared_total",
		Help: "Requests served with the response to another client's identical request: the requests that coalescing saved.",
	})
	return c
}

// SetMaxBody bounds the bytes that are kept of one response.
func (c *Coalescer) SetMaxBody(n int64) { c.maxBody.Store(n) }

// Header returns the header of the response, which must not be changed.
func (a *Shared) Header() api.Header { return a.header }

// Body returns the body, which must not be changed.
func (a *Shared) Body() []byte { return a.body }

// maxHeld returns the limit of held.
func (c *Coalescer) maxHeld() int64 { return maxResponses * max(c.maxBody.Load(), firstPiece) }

// reserve counts n more bytes. It returns false if there is no room for them.
func (c *Coalescer) reserve(n int64) bool {
	if c.held.Add(n) > c.maxHeld() {
		c.held.Add(-n)
		return false
	}
	return true
}

// Register registers the metrics of c; registerer may be nil.
func (c *Coalescer) Register(registerer prometheus.Registerer) {
	if registerer != nil {
		registerer.MustRegister(c.shared)
	}
	gaugefunc.Register(registerer, "kubeweir_collapsed_bytes",
		"Bytes of upstream responses that are held to be shared by coalesced requests.", c.held.Load)
	gaugefunc.Register(registerer, "kubeweir_collapsed_bytes_limit",
		"Limit on the bytes of shared upstream responses; above it requests are forwarded one by one.", c.maxHeld)
}

// Do returns a response to r that the upstream sent after r arrived, and adds r's part of the cost to
// cost. After an error r must be forwarded on its own.
func (c *Coalescer) Do(ctx context.Context, r *api.Request, pretty bool, cost *freshness.Cost) (*api.Response, error) {
	key := KeyOf(r, pretty)
	if c.KnownLarge(key) {
		return nil, ErrTooLarge
	}
	request := sharedRequest(r)
	shared, by, err := c.flights.Do(ctx, key, func(ctx context.Context) (*Shared, error) {
		shared, err := c.Read(c.fetch(ctx, request))
		if errors.Is(err, ErrTooLarge) {
			c.RememberLarge(key)
		}
		return shared, err
	})
	cost.Requests += by.Part()
	if err != nil {
		return nil, err
	}
	cost.Bytes += by.Part() * float64(len(shared.body))
	if !by.First {
		c.shared.Inc()
	}
	return shared.Response(), nil
}

// sharedRequest returns r without anything that identifies its client: others get the response, too.
func sharedRequest(r *api.Request) *api.Request {
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

// Read reads a complete response, up to the limit.
func (c *Coalescer) Read(resp *api.Response) (*Shared, error) {
	shared := &Shared{c: c, status: resp.Status, header: response.SharedHeader(resp.Header)}
	switch {
	case resp.Stream != nil:
		// A long-running response cannot be shared; nothing was started yet.
		resp.Stream.Stop()
		return nil, ErrTooLarge
	case resp.BodyTo == nil:
		shared.body, shared.bytes = resp.Body, int64(len(resp.Body))
		response.Finish(resp, shared.bytes, nil)
		return shared, nil
	case resp.Length > c.maxBody.Load():
		response.Finish(resp, 0, ErrTooLarge)
		return nil, ErrTooLarge
	}
	body := bounded{max: c.maxBody.Load(), reserve: c.reserve}
	defer func() { c.held.Add(-body.reserved) }() // from here on Response counts it
	var n int64
	err := body.grow(resp.Length)
	if err == nil {
		n, err = resp.BodyTo.WriteTo(&body)
	}
	response.Finish(resp, n, err)
	if err != nil {
		return nil, err
	}
	shared.body, shared.bytes = body.bytes, body.reserved
	return shared, nil
}

// KnownLarge reports whether the response to a request was above the limit lately.
func (c *Coalescer) KnownLarge(key Key) bool {
	return c.large.has(maphash.Comparable(c.seed, key), c.now())
}

// RememberLarge records that the response to a request was above the limit.
func (c *Coalescer) RememberLarge(key Key) {
	c.large.add(maphash.Comparable(c.seed, key), c.now(), largeFor)
}

// bounded collects up to max bytes and fails beyond.
type bounded struct {
	bytes []byte
	max   int64
	// reserve is called for the memory of bytes, which is reserved.
	reserve  func(int64) bool
	reserved int64
}

// grow makes room for n bytes in all.
func (w *bounded) grow(n int64) error {
	if n <= w.reserved {
		return nil
	}
	if !w.reserve(n - w.reserved) {
		return ErrNoRoom
	}
	w.reserved = n
	w.bytes = append(make([]byte, 0, n), w.bytes...)
	return nil
}

const firstPiece = 32 << 10

// Write implements io.Writer.
func (w *bounded) Write(p []byte) (int, error) {
	size := int64(len(w.bytes) + len(p))
	if size > w.max {
		return 0, ErrTooLarge
	}
	if size > w.reserved {
		// The upstream hardly ever sends the length of a list.
		if err := w.grow(max(size, firstPiece, min(2*w.reserved, w.max))); err != nil {
			return 0, err
		}
	}
	w.bytes = append(w.bytes, p...)
	return len(p), nil
}
