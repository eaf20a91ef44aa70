package edge

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
)

// TestHTTP2MadeYouReset: a client that has the server reset its requests (CVE-2025-8671) is
// stopped as one that resets them, also if it waits for each so that they are never too many.
func TestHTTP2MadeYouReset(t *testing.T) {
	block := []byte{0, 1, 'a', 1, 'b'}
	for name, provoke := range map[string]struct {
		header []string
		write  func(f *frameConn, id uint32) error
	}{
		"window update of 0": {nil, func(f *frameConn, id uint32) error {
			return f.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4))
		}},
		"window too large": {nil, func(f *frameConn, id uint32) error { return f.WriteWindowUpdate(id, maxWindow) }},
		"stream that depends on itself": {nil, func(f *frameConn, id uint32) error {
			return f.WriteRawFrame(http2.FramePriority, 0, id, []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id), 0}) //nolint:gosec // the bytes of a number
		}},
		"more than the length": {[]string{"content-length", "1"}, func(f *frameConn, id uint32) error { return f.WriteData(id, false, []byte("xx")) }},
		"less than the length": {[]string{"content-length", "2"}, func(f *frameConn, id uint32) error { return f.WriteData(id, true, []byte("x")) }},
		"trailers too early": {[]string{"content-length", "2"}, func(f *frameConn, id uint32) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true})
		}},
		"trailers without an end": {nil, func(f *frameConn, id uint32) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
		}},
		"pseudo fields in trailers": {nil, func(f *frameConn, id uint32) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x84}, EndHeaders: true, EndStream: true})
		}},
		"data behind the end": {nil, func(f *frameConn, id uint32) error {
			return errors.Join(f.WriteData(id, true, nil), f.WriteData(id, false, []byte("x")))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			ts := startServer(t, func(ctx context.Context, r *api.Request) *api.Response {
				calls.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				<-ctx.Done()
				return text("late")
			}, func(o *Options) { o.lingerTimeout = briefLinger })
			c := ts.dialFrames()
			c.tolerant()
			began := time.Now()
			for {
				id := c.request("POST", "/", true, provoke.header...)
				if errors.Join(c.failed(), provoke.write(c, id)) != nil || !c.resets(id) {
					break
				}
				if calls.Load() > 5000 {
					break
				}
			}
			seconds := int64(time.Since(began)/time.Second) + 2
			if n, most := calls.Load(), (effortCredit+seconds*effortPerSec)/effortReset; n > most {
				t.Errorf("%d requests were reset, want at most %d", n, most)
			}
		})
	}
}

// resets waits for the reset of a stream, and says whether the connection goes on behind it.
func (f *frameConn) resets(id uint32) bool {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return false
		}
		if isReset(id)(frame) {
			return true
		}
	}
}
