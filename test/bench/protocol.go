package bench

import (
	"context"
	"fmt"
	"time"
)

// A Protocol is the protocol of a row's requests.
type Protocol string

// The protocols. The zero value means HTTP/1.1.
const (
	HTTP1     Protocol = "HTTP/1.1"
	HTTP2     Protocol = "HTTP/2"
	WebSocket Protocol = "WebSocket" // upgraded from HTTP/1.1
)

// A caller is a client's connection. It may have several requests in flight. Not for concurrent
// use.
type caller interface {
	// send sends a request without waiting for its response.
	send(spec requestSpec) error
	// receive reads a whole response, whatever its status: over HTTP/1.1 that of the oldest
	// request, over HTTP/2 that of any request. Its head is valid until the next call.
	receive() (response, error)
	close()
}

// dialOver opens a caller's connection, which is closed at the latest when ctx ends.
func dialOver(ctx context.Context, p Protocol, s *server) (caller, error) {
	if p == HTTP2 {
		return dialHTTP2Caller(ctx, s)
	}
	return dial(ctx, s, 64<<10)
}

// received receives a response and returns an error unless its status is one of those given.
func received(c caller, spec requestSpec, statuses ...int) (response, error) {
	r, err := c.receive()
	if err != nil {
		return r, fmt.Errorf("%s: %w", spec.path, err)
	}
	for _, s := range statuses {
		if r.status == s {
			return r, nil
		}
	}
	return r, fmt.Errorf("%s: status %d: %.300s", spec.path, r.status, r.head)
}

// An exchange is the operation that a row repeats: begin sends a request, end receives a response.
type exchange interface {
	begin() error
	end() (response, error)
}

// repeated is an exchange that cycles through its requests.
type repeated struct {
	caller
	specs []requestSpec
	next  int
}

func repeat(c caller, specs ...requestSpec) *repeated { return &repeated{caller: c, specs: specs} }

func (r *repeated) begin() error {
	spec := r.specs[r.next]
	r.next = (r.next + 1) % len(r.specs)
	return r.send(spec)
}

func (r *repeated) end() (response, error) { return received(r.caller, r.specs[0], 200, 304) }

// once does one exchange.
func once(e exchange) (response, error) {
	if err := e.begin(); err != nil {
		return response{}, err
	}
	return e.end()
}

// sentTimes holds when the outstanding requests were sent, in the order of their responses.
type sentTimes []time.Time

// next removes the oldest request and returns how long ago it was sent.
func (t *sentTimes) next() time.Duration {
	if len(*t) == 0 {
		return 0
	}
	took := time.Since((*t)[0])
	*t = append((*t)[:0], (*t)[1:]...)
	return took
}
