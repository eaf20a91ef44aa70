package h2

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// TestHTTP2MadeYouReset: a client that has the server reset its requests (CVE-2025-8671) is
// stopped as one that resets them, also if it waits for each so that they are never too many.
func TestHTTP2MadeYouReset(t *testing.T) {
	block := []byte{0, 1, 'a', 1, 'b'}
	for name, provoke := range map[string]struct {
		header []string
		write  func(f *edgetest.FrameConn, id uint32) error
	}{
		"window update of 0": {nil, func(f *edgetest.FrameConn, id uint32) error {
			return f.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4))
		}},
		"window too large": {nil, func(f *edgetest.FrameConn, id uint32) error { return f.WriteWindowUpdate(id, maxWindow) }},
		"stream that depends on itself": {nil, func(f *edgetest.FrameConn, id uint32) error {
			return f.WriteRawFrame(http2.FramePriority, 0, id, []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id), 0}) //nolint:gosec // the bytes of a number
		}},
		"more than the length": {[]string{"content-length", "1"}, func(f *edgetest.FrameConn, id uint32) error { return f.WriteData(id, false, []byte("xx")) }},
		"less than the length": {[]string{"content-length", "2"}, func(f *edgetest.FrameConn, id uint32) error { return f.WriteData(id, true, []byte("x")) }},
		"trailers too early": {[]string{"content-length", "2"}, func(f *edgetest.FrameConn, id uint32) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true})
		}},
		"trailers without an end": {nil, func(f *edgetest.FrameConn, id uint32) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
		}},
		"pseudo fields in trailers": {nil, func(f *edgetest.FrameConn, id uint32) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x84}, EndHeaders: true, EndStream: true})
		}},
		"data behind the end": {nil, func(f *edgetest.FrameConn, id uint32) error {
			return errors.Join(f.WriteData(id, true, nil), f.WriteData(id, false, []byte("x")))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			ts := edgetest.Start(t, func(ctx context.Context, r *api.Request) *api.Response {
				calls.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				<-ctx.Done()
				return edgetest.Text("late")
			}, func(o *edge.Options) { o.LingerTimeout = briefLinger })
			c := ts.DialFrames()
			c.Tolerant()
			began := time.Now()
			for {
				id := c.Request("POST", "/", true, provoke.header...)
				if errors.Join(c.Failed(), provoke.write(c, id)) != nil || !c.Resets(id) {
					break
				}
				if calls.Load() > 5000 {
					break
				}
			}
			seconds := int64(time.Since(began)/time.Second) + 2
			if n, most := calls.Load(), (maxCredit+seconds*creditPerSecond)/resetCost; n > most {
				t.Errorf("%d requests were reset, want at most %d", n, most)
			}
		})
	}
}
