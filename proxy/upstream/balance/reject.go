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
// (routes.NotFoundHandler). The last rejects reads, by a server whose watch cache is not filled yet.
const (
	noticeShutdown = "apiserver is shutting down"
	noticeStarting = "the request has been made before all known HTTP paths have been installed"
	noticeStorage  = "storage is (re)initializing"
)

// isRejected reports whether the server did not process the request, but another may. The response
// can be read all the same.
func (a *attempt) isRejected(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		return false
	}
	if isProxied(resp.Request.URL) {
		return false // its body may last
	}
	message := peek(resp)
	if parsed, ok := status.Parse([]byte(message)); ok {
		message = parsed.Message
	}
	// In the middle of a message, the text may concern another server.
	for _, notice := range []string{noticeShutdown, noticeStarting} {
		if strings.HasPrefix(strings.TrimPrefix(message, "The "), notice) {
			a.server.check() // which may find that another one behind it does
			return true
		}
	}
	return a.repeatable && strings.Contains(message, noticeStorage)
}

// peek returns the beginning of a response's body, which can still be read.
func peek(resp *http.Response) string {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxNotice)) // a responseBody keeps its error
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(b), resp.Body), resp.Body}
	return string(b)
}

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
