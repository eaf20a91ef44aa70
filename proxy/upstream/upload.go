package upstream

import (
	"errors"
	"io"
	"sync/atomic"
)

var errRequestOver = errors.New("the request is over")

// upload is the body of a forwarded request. net/http reads it in a goroutine of its own, maybe
// still when the upstream has responded. It reads nothing more once the request is over.
type upload struct {
	r      io.Reader
	failed atomic.Pointer[error] // of the client's, not io.EOF
	over   atomic.Bool
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

// sent reports whether no more of the body will be read.
func (u *upload) sent() bool { return u == nil || u.over.Load() }

// err returns why the client's body could not be read.
func (u *upload) err() error {
	if u == nil {
		return nil
	}
	if err := u.failed.Load(); err != nil {
		return *err
	}
	return nil
}
