package balance

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// sharedBody is the body of a request that may go to several servers, one after the other. A
// transport closes the body that it is given, also when it could not connect.
type sharedBody struct {
	req *http.Request
	mu  struct {
		sync.Mutex
		read     bool // something of the body is gone
		failed   bool // it could not be read
		closed   bool // the last attempt's transport closed it
		last     *lentBody
		released bool // that transport may close it
	}
}

// attach returns the request for the next attempt; false when its body is gone.
func (h *sharedBody) attach(req *http.Request) (*http.Request, bool) {
	if req.Body == nil || req.Body == http.NoBody {
		return req, true
	}
	out := *req
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, false
		}
		out.Body = body
		return &out, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.read {
		return nil, false
	}
	h.mu.closed = false
	h.mu.last = &lentBody{h}
	out.Body = h.mu.last
	return &out, true
}

// release is called when there is no further attempt.
func (h *sharedBody) release() {
	if h.req.Body == nil {
		return
	}
	h.mu.Lock()
	h.mu.released = true
	closed := h.mu.closed || h.mu.last == nil
	h.mu.Unlock()
	if closed {
		_ = h.req.Body.Close()
	}
}

// isBroken reports whether the body could not be read, which says nothing of servers.
func (h *sharedBody) isBroken() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.failed
}

// lentBody is the body as one attempt sees it.
type lentBody struct{ h *sharedBody }

var errAnotherServer = errors.New("the request went to another server")

// Read implements io.Reader.
func (l *lentBody) Read(p []byte) (int, error) {
	h := l.h
	h.mu.Lock()
	if h.mu.last != l {
		h.mu.Unlock()
		return 0, errAnotherServer
	}
	h.mu.read = true
	h.mu.Unlock()
	n, err := h.req.Body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		h.mu.Lock()
		h.mu.failed = true
		h.mu.Unlock()
	}
	return n, err
}

// Close implements io.Closer.
func (l *lentBody) Close() error {
	h := l.h
	h.mu.Lock()
	if h.mu.last != l {
		h.mu.Unlock()
		return nil
	}
	h.mu.closed = true
	own := h.mu.released
	h.mu.Unlock()
	if own {
		return h.req.Body.Close()
	}
	return nil
}
