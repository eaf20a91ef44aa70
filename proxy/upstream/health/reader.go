package health

import (
	"context"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// IdleReader is a response body that ends, with the request, when it stalls while it is read. Its
// methods are called by one goroutine at a time.
type IdleReader struct {
	io.ReadCloser
	// Wait is for each read, unless its Timeout is 0.
	Wait
	// Received, if set, counts the bytes.
	Received prometheus.Counter

	Count int64 // bytes so far
	ctx   context.Context
}

// NewIdleReader returns a reader of body, of a request whose context is ctx with cancel.
func NewIdleReader(ctx context.Context, cancel context.CancelCauseFunc, body io.ReadCloser, timeout time.Duration) *IdleReader {
	return &IdleReader{ReadCloser: body, ctx: ctx, Wait: Wait{Timeout: timeout, cancel: cancel, late: ErrStalled}}
}

// Read implements io.Reader. Its error is why the request was canceled, if it was.
func (r *IdleReader) Read(p []byte) (int, error) {
	if r.Timeout > 0 {
		r.start()
		defer r.stop()
	}
	n, err := r.ReadCloser.Read(p)
	r.Count += int64(n)
	if r.Received != nil {
		r.Received.Add(float64(n))
	}
	// Also io.EOF: a server that notices the cancellation may still get the end of a chunked body
	// through, which would look complete then.
	return n, Cause(r.ctx, err)
}
