package upstream

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

var errRequestOver = errors.New("the request is over")

// upload is the body of a forwarded request on its way upstream. net/http reads
// it in a goroutine of its own, which may be at it still when the upstream has
// answered; it reads nothing more once the request is over.
type upload struct {
	r      io.Reader
	failed atomic.Pointer[error] // of the client's, not io.EOF
	over   atomic.Bool
}

// smallUpload is up to what size a body is read before its request is sent. It
// leaves with the head in one write then, where net/http would send the head by
// itself and have the upstream wait for the rest.
const smallUpload = 16 << 10

// collect reads the body of req if it is small.
func (x *forwarding) collect(req *http.Request) error {
	if x.upload == nil || req.ContentLength < 0 || req.ContentLength > smallUpload {
		return nil
	}
	if b, ok := x.r.Body.(interface{ SetReadDeadline(time.Time) error }); ok {
		if err := b.SetReadDeadline(time.Now().Add(x.c.limits.RequestTimeout)); err != nil {
			return err
		}
	}
	body := make([]byte, req.ContentLength)
	for n := 0; n < len(body); {
		m, err := x.upload.Read(body[n:])
		n += m
		switch {
		case n == len(body):
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
			x.upload.failed.Store(&err)
			return err
		case err != nil:
			return err
		}
	}
	x.upload.over.Store(true)
	// Readers that net/http knows not to block.
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = req.GetBody()
	return nil
}

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	if u.over.Load() {
		return 0, errRequestOver
	}
	n, err := u.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		u.failed.Store(&err)
	}
	return n, err
}

// Close implements io.Closer.
func (u *upload) Close() error {
	u.over.Store(true)
	return nil
}

// sent reports whether nothing will be read any more.
func (u *upload) sent() bool { return u == nil || u.over.Load() }

// err is why the client's body could not be read.
func (u *upload) err() error {
	if u == nil {
		return nil
	}
	if err := u.failed.Load(); err != nil {
		return *err
	}
	return nil
}
