package h1

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// TestBodyDeadline is the same over HTTP/1.1.
func TestBodyDeadline(t *testing.T) {
	errs := make(chan error, 1)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		d := r.Body.(interface{ SetReadDeadline(time.Time) error })
		_ = d.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := io.ReadAll(r.Body)
		errs <- err
		return edgetest.Text("late")
	})
	for _, dial := range []func() *edgetest.RawConn{ts.Dial, ts.DialTLS} {
		for _, framing := range []string{"Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"} {
			c := dial()
			c.Send("%s", "POST / HTTP/1.1\r\nHost: x\r\n"+framing)
			if err := edgetest.Receive(t, errs, "error"); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("reading: %v", err)
			}
			if _, body := c.Response("POST"); body != "late" {
				t.Errorf("got %q", body)
			}
			c.Ended()
		}
	}
	// The deadline was that body's own.
	c := ts.Dial()
	for range 2 {
		c.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")
		if err := edgetest.Receive(t, errs, "error"); err != nil {
			t.Error(err)
		}
		c.Response("POST")
	}
}
