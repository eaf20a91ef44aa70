package extension

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"
)

// DocumentSize is how many bytes of discovery or OpenAPI are taken from an aggregated
// API server. Those of kube-apiserver have 4 MB.
const DocumentSize = 32 << 20

// documentTimeout is how long one of them may take, which is what kube-aggregator gives
// discovery. To OpenAPI it gives a minute, under a lock that the other documents wait for.
const documentTimeout = 5 * time.Second

// Documents serves the libraries' downloads of discovery and OpenAPI by next, a handler
// of an aggregated API server. They collect the answer in memory, and a panic of the
// handler, a response writer's about an impossible status for one, would be one of a
// goroutine of theirs, where it ends the process.
func Documents(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p != any(http.ErrAbortHandler) {
				log.Error("panic while downloading from an aggregated API server", "path", req.URL.Path, "panic", p, "stack", string(debug.Stack()))
			}
			http.Error(w, "bad gateway", http.StatusBadGateway)
		}()
		ctx, cancel := context.WithTimeout(req.Context(), documentTimeout)
		defer cancel()
		req = req.WithContext(ctx)
		next.ServeHTTP(&boundedWriter{w, DocumentSize}, req)
	})
}

// boundedWriter takes so many bytes and no more. It has no Unwrap: nothing may be
// flushed, and nothing written past it.
type boundedWriter struct {
	http.ResponseWriter
	left int
}

// Write implements io.Writer.
func (b *boundedWriter) Write(p []byte) (int, error) {
	if len(p) > b.left {
		return 0, tooLargeError(DocumentSize)
	}
	b.left -= len(p)
	return b.ResponseWriter.Write(p)
}

// Statuses returns a transport that takes an answer whose status no response may have
// for an error: net/http reads any three digits, and panics when it is to write them.
func Statuses(next http.RoundTripper) http.RoundTripper { return statuses{next} }

type statuses struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s statuses) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(req)
	if err == nil && (resp.StatusCode < 100 || resp.StatusCode > 999) {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the answer's status is %d", resp.StatusCode)
	}
	return resp, err
}

// WrappedRoundTripper implements net.RoundTripperWrapper of k8s.io/apimachinery: the
// dialer of upgrades is looked for behind it.
func (s statuses) WrappedRoundTripper() http.RoundTripper { return s.RoundTripper }
