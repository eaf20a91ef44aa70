package balance

import (
	"io"
	"net/http"
	"sync/atomic"
)

// sharedBody is the body of a request that may go to several servers, one after the other. A
// transport closes the body that it is given, also when it could not connect.
type sharedBody struct {
	req  *http.Request
	last *lentBody // of the last attempt
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
	if !h.takeBack() {
		return nil, false
	}
	h.last = &lentBody{ReadCloser: req.Body}
	out.Body = h.last
	return &out, true
}

// takeBack ends the last attempt's use of the body. It returns false if that has begun to read.
func (h *sharedBody) takeBack() bool {
	return h.last == nil || h.last.state.CompareAndSwap(unread, taken) || h.last.state.CompareAndSwap(closed, taken)
}

// release is called when there is no further attempt: the last one may read on, and closes the body.
func (h *sharedBody) release() {
	if h.req.Body != nil && (h.last == nil || !h.last.state.CompareAndSwap(unread, read) && h.last.state.Load() == closed) {
		_ = h.req.Body.Close()
	}
}

// lentBody is the body as one attempt sees it.
type lentBody struct {
	io.ReadCloser
	state atomic.Int32
}

// The states of a lentBody.
const (
	unread = iota
	closed // unread
	read   // by the attempt, which closes the body
	taken  // for another attempt
)

// Read implements io.Reader.
func (l *lentBody) Read(p []byte) (int, error) {
	if l.state.CompareAndSwap(unread, read) || l.state.Load() == read {
		return l.ReadCloser.Read(p)
	}
	return 0, http.ErrBodyReadAfterClose
}

// Close implements io.Closer.
func (l *lentBody) Close() error {
	if !l.state.CompareAndSwap(unread, closed) && l.state.Load() == read {
		return l.ReadCloser.Close()
	}
	return nil
}
