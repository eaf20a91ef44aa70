package balance

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/kubeweir/kubeweir/proxy/upstream/status"
)

// held is the body of a request that may go to several servers, one after the other. A
// transport closes the body that it is given, also when it could not connect.
type held struct {
	req *http.Request
	mu  struct {
		sync.Mutex
		read    bool // something of the body is gone
		failed  bool // it could not be read
		closed  bool // the last attempt's transport closed it
		given   *loan
		release bool // it is that transport's own
	}
}

func hold(req *http.Request) *held { return &held{req: req} }

// attach returns the request for the next attempt; false when its body is gone.
func (h *held) attach(req *http.Request) (*http.Request, bool) {
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
	h.mu.given = &loan{h}
	out.Body = h.mu.given
	return &out, true
}

// release is called when there is no further attempt.
func (h *held) release() {
	if h.req.Body == nil {
		return
	}
	h.mu.Lock()
	h.mu.release = true
	closed := h.mu.closed || h.mu.given == nil
	h.mu.Unlock()
	if closed {
		_ = h.req.Body.Close()
	}
}

// broken reports whether the body could not be read, which says nothing of servers.
func (h *held) broken() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.failed
}

// loan is the body as one attempt sees it.
type loan struct{ h *held }

var errAnotherServer = errors.New("the request went to another server")

// Read implements io.Reader.
func (l *loan) Read(p []byte) (int, error) {
	h := l.h
	h.mu.Lock()
	if h.mu.given != l {
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
func (l *loan) Close() error {
	h := l.h
	h.mu.Lock()
	if h.mu.given != l {
		h.mu.Unlock()
		return nil
	}
	h.mu.closed = true
	own := h.mu.release
	h.mu.Unlock()
	if own {
		return h.req.Body.Close()
	}
	return nil
}

// maxNotice bounds what is read of an answer that may say that the server is not the one
// to ask.
const maxNotice = 4 << 10

// What servers of k8s.io/apiserver answer to requests that they do not look at: while
// they shut down (filters.WithRetryAfter, which begins it with "The", filters.WithWaitGroup),
// and while they start (routes.NotFoundHandler). The other two are said of reads: by one
// whose watch cache is not filled yet, and by one that is behind.
const (
	noticeShutdown = "apiserver is shutting down"
	noticeStarting = "the request has been made before all known HTTP paths have been installed"
	noticeStorage  = "storage is (re)initializing"
	noticeBehind   = "Too large resource version"
)

// refusedBy reports whether the server has not done what was asked, but another may, and
// what it says. The response can be read all the same.
func (a *attempt) refusedBy(resp *http.Response) (notice string, refused bool) {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return "", false
	}
	if proxied(resp.Request.URL) {
		return "", false // and may go on for long
	}
	message := peek(resp)
	if said, ok := status.Parse([]byte(message)); ok {
		message = said.Message
	}
	// In the middle of a message it may be somebody else of whom this is told.
	for _, notice := range []string{noticeShutdown, noticeStarting} {
		if strings.HasPrefix(strings.TrimPrefix(message, "The "), notice) {
			a.server.look() // which may find that it is another's behind it that does
			return notice, true
		}
	}
	for _, notice := range []string{noticeStorage, noticeBehind} {
		if strings.Contains(message, notice) {
			return notice, a.repeatable
		}
	}
	return "", false
}

// peek returns the beginning of a response's body, which stays there to be read.
func peek(resp *http.Response) string {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxNotice))
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = &failing{err}
	}
	resp.Body = &peeked{io.MultiReader(bytes.NewReader(b), rest), resp.Body}
	return string(b)
}

// peeked is a body of which the beginning was read already.
type peeked struct {
	io.Reader
	io.Closer
}

// failing is the end of a body.
type failing struct{ err error }

// Read implements io.Reader.
func (f *failing) Read([]byte) (int, error) { return 0, f.err }
