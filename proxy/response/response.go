package response

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/kubeweir/kubeweir/internal/api"
)

// SharedHeader returns the fields of a response's header that all clients that share it may see.
func SharedHeader(h api.Header) (shared api.Header) {
	for _, f := range h {
		// Each client gets its own Audit-Id.
		if f.Name != "Audit-Id" && f.Name != "Content-Length" && f.Name != "Date" {
			shared = append(shared, f)
		}
	}
	return shared
}

// Finish calls Done of a response, if it has one.
func Finish(resp *api.Response, n int64, err error) {
	if resp.Done != nil {
		resp.Done(n, err)
	}
}

var errNotWanted = errors.New("the response is not wanted")

// Discard ends a response that is not wanted.
func Discard(resp *api.Response) {
	if resp.Stream != nil {
		resp.Stream.Stop()
	}
	Finish(resp, 0, errNotWanted)
}

// ReadBody reads the body of a response and ends the response. The error is ErrTooLarge if a body that
// is not in memory yet has more than limit bytes.
func ReadBody(resp *api.Response, limit int) ([]byte, error) {
	if resp.BodyTo == nil {
		Finish(resp, int64(len(resp.Body)), nil)
		return resp.Body, nil
	}
	body := NewBuffer(limit)
	n, err := resp.BodyTo.WriteTo(body)
	Finish(resp, n, err)
	return body.Bytes(), err
}

// Buffer is an io.Writer that takes up to a number of bytes.
type Buffer struct {
	bytes bytes.Buffer
	max   int
}

// NewBuffer returns a buffer that takes up to limit bytes.
func NewBuffer(limit int) *Buffer { return &Buffer{max: limit} }

// Bytes returns what was written.
func (b *Buffer) Bytes() []byte { return b.bytes.Bytes() }

// Write implements io.Writer. The error is ErrTooLarge beyond the limit.
func (b *Buffer) Write(p []byte) (int, error) {
	if b.bytes.Len()+len(p) > b.max {
		return 0, fmt.Errorf("%w of %d bytes", ErrTooLarge, b.max)
	}
	return b.bytes.Write(p)
}

// ErrTooLarge is the error of a write beyond the limit of a Buffer.
var ErrTooLarge = errors.New("it is larger than the limit")
