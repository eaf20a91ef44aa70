package balance

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/kubeweir/kubeweir/proxy/upstream/status"
)

// maxNotice bounds what is read of a response that may say that the server is the wrong one to ask.
const maxNotice = 4 << 10

// How servers of k8s.io/apiserver reject requests without processing them: while they shut down
// (filters.WithRetryAfter, which begins it with "The", filters.WithWaitGroup), and while they start
// (routes.NotFoundHandler). The other two reject reads: by a server whose watch cache is not filled
// yet, and by one that is behind.
const (
	noticeShutdown = "apiserver is shutting down"
	noticeStarting = "the request has been made before all known HTTP paths have been installed"
	noticeStorage  = "storage is (re)initializing"
	noticeBehind   = "Too large resource version"
)

// rejectedBy reports whether the server did not process the request, but another may, and what it
// says. The response can be read all the same.
func (a *attempt) rejectedBy(resp *http.Response) (notice string, rejected bool) {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return "", false
	}
	if isProxied(resp.Request.URL) {
		return "", false // its body may last
	}
	message := peek(resp)
	if said, ok := status.Parse([]byte(message)); ok {
		message = said.Message
	}
	// In the middle of a message this may be said of another server.
	for _, notice := range []string{noticeShutdown, noticeStarting} {
		if strings.HasPrefix(strings.TrimPrefix(message, "The "), notice) {
			a.server.check() // which may find that another one behind it does
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

// peek returns the beginning of a response's body, which can still be read.
func peek(resp *http.Response) string {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxNotice))
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = failingReader{err}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(b), rest), resp.Body}
	return string(b)
}

// failingReader is the end of a body that broke off.
type failingReader struct{ err error }

// Read implements io.Reader.
func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// isProxied reports whether kube-apiserver passes a request to a program that may do anything with
// it.
func isProxied(u *url.URL) bool {
	path := u.Opaque
	if path == "" {
		path = u.Path
	} else if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	return strings.Contains(path, "/proxy/") || strings.HasSuffix(path, "/proxy")
}
