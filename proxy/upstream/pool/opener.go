package pool

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// opener lets requests that arrive together, at a server to which there is no HTTP/2 connection
// yet, share the one that the first of them opens. An http.Transport would open one for each and
// discard all but one. That is a handshake each, of which a slow link carries three a second. A
// request waits for another one at most once.
type opener struct {
	open  atomic.Int64 // connections
	mu    sync.Mutex
	first chan struct{} // guarded by mu: closed when the first request has its connection or failed; nil if there is none
}

// enter waits until req may be sent, and returns the request to send. done must be called when that
// is over.
func (o *opener) enter(req *http.Request) (_ *http.Request, done func(), err error) {
	o.mu.Lock()
	first := o.first
	if first == nil && o.open.Load() == 0 {
		first = make(chan struct{})
		o.first = first
		o.mu.Unlock()
		done = sync.OnceFunc(func() { o.leave(first) })
		trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { done() }}
		return req.WithContext(httptrace.WithClientTrace(req.Context(), trace)), done, nil
	}
	o.mu.Unlock()
	if first != nil {
		select {
		case <-first:
		case <-req.Context().Done():
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, nil, context.Cause(req.Context())
		}
	}
	return req, func() {}, nil
}

func (o *opener) leave(first chan struct{}) {
	o.mu.Lock()
	o.first = nil
	o.mu.Unlock()
	close(first)
}
