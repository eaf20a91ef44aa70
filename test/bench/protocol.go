package bench

import (
	"context"
	"fmt"
	"time"
)

// A Protocol is what a row's requests are made over.
type Protocol string

// The protocols. The zero value is HTTP/1.1, too.
const (
	HTTP1     Protocol = "HTTP/1.1"
	HTTP2     Protocol = "HTTP/2"
	WebSocket Protocol = "WebSocket" // upgraded from HTTP/1.1
)

// A caller is a client's connection. It may have several requests under way. Not for concurrent use.
type caller interface {
	// send sends a request without waiting for its answer.
	send(spec requestSpec) error
	// receive takes a whole answer, whatever its status: over HTTP/1.1 that of the request sent first, over HTTP/2
	// that of any. Its head is valid until the next call.
	receive() (response, error)
	close()
}

// dialOver opens a caller's connection, which is closed when ctx ends at the latest.
func dialOver(ctx context.Context, p Protocol, s *server) (caller, error) {
	if p == HTTP2 {
		return dialHTTP2Caller(ctx, s)
	}
	return dial(ctx, s, 64<<10)
}

// received is an answer whose status is one of those given; every other is an error.
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

// An exchange is what a row does again and again: begin sends a request, end takes an answer.
type exchange interface {
	begin() error
	end() (response, error)
}

// repeated is an exchange of requests, one after the other and again from the first.
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

// once does an exchange.
func once(e exchange) (response, error) {
	if err := e.begin(); err != nil {
		return response{}, err
	}
	return e.end()
}

// sentTimes are when the requests were sent whose answers are due, in the order of answers.
type sentTimes []time.Time

// next is how long ago the first of them was, which is dropped.
func (t *sentTimes) next() time.Duration {
	if len(*t) == 0 {
		return 0
	}
	took := time.Since((*t)[0])
	*t = append((*t)[:0], (*t)[1:]...)
	return took
}
