package edge

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/internal/api"
)

// What a client may do to an HTTP/2 server, and that each is bounded by a number.

// goAwayOf reads until the connection is over and returns the code it was ended with,
// and whether it was ended.
func (f *frameConn) goAwayOf() (code http2.ErrCode, told bool) {
	f.t.Helper()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			var timeout interface{ Timeout() bool }
			if errors.As(err, &timeout) && timeout.Timeout() {
				f.t.Fatal("the connection is still open")
			}
			return code, told
		}
		if g, ok := frame.(*http2.GoAwayFrame); ok {
			code, told = g.ErrCode, true
		}
	}
}

// flood writes until the server has had enough, at most n times.
func (f *frameConn) flood(n int, write func(i int) error) (written int) {
	for written < n {
		if write(written) != nil {
			return written
		}
		written++
	}
	return written
}

// TestHTTP2Floods: frames that ask for nothing of use are taken up to a credit.
func TestHTTP2Floods(t *testing.T) {
	for name, tc := range map[string]struct {
		stream bool // with an open request that has a body
		write  func(f *frameConn, i int) error
	}{
		"settings": {false, func(f *frameConn, _ int) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 14})
		}},
		"settings acks": {false, func(f *frameConn, _ int) error { return f.WriteSettingsAck() }},
		"pings":         {false, func(f *frameConn, _ int) error { return f.WritePing(false, [8]byte{}) }},
		"ping acks":     {false, func(f *frameConn, _ int) error { return f.WritePing(true, [8]byte{}) }},
		"priorities": {false, func(f *frameConn, i int) error {
			return f.WritePriority(uint32(2*i+1), http2.PriorityParam{StreamDep: 0})
		}},
		"window updates":      {false, func(f *frameConn, _ int) error { return f.WriteWindowUpdate(0, 1) }},
		"stream updates":      {true, func(f *frameConn, _ int) error { return f.WriteWindowUpdate(1, 1) }},
		"empty data":          {true, func(f *frameConn, _ int) error { return f.WriteData(1, false, nil) }},
		"padding":             {true, func(f *frameConn, _ int) error { return f.WriteDataPadded(1, false, nil, make([]byte, 3)) }},
		"padded bytes":        {true, func(f *frameConn, _ int) error { return f.WriteDataPadded(1, false, []byte("x"), make([]byte, 255)) }},
		"unknown frames":      {false, func(f *frameConn, _ int) error { return f.WriteRawFrame(0xfa, 0, 0, nil) }},
		"data of no stream":   {true, func(f *frameConn, _ int) error { return f.WriteData(3, false, []byte("x")) }},
		"resets of no stream": {true, func(f *frameConn, _ int) error { return f.WriteRSTStream(1, http2.ErrCodeCancel) }},
		"malformed requests":  {false, func(f *frameConn, _ int) error { f.request("get x", "/", false); return f.failed() }},
		"requests reset": {false, func(f *frameConn, _ int) error {
			return f.WriteRSTStream(f.request("GET", "/", false), http2.ErrCodeCancel)
		}},
		"requests to be reset": {false, func(f *frameConn, _ int) error {
			return f.WriteRawFrame(http2.FrameWindowUpdate, 0, f.request("GET", "/", false), make([]byte, 4))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var running, peak atomic.Int32
			ts := startServer(t, func(ctx context.Context, r *api.Request) *api.Response {
				n := running.Add(1)
				for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() { //nolint:revive // Until it is the highest.
				}
				defer running.Add(-1)
				<-ctx.Done()
				return text("late")
			}, func(o *Options) { o.MaxStreams = 20 })
			c := ts.dialFrames()
			ended := make(chan http2.ErrCode, 1)
			c.tolerant()
			go func() { code, _ := c.goAwayOf(); ended <- code }()
			if tc.stream {
				c.request("POST", "/", true)
				if name == "data of no stream" {
					_ = c.WriteRSTStream(c.request("POST", "/", true), http2.ErrCodeCancel)
				}
			}
			most := 1_000_000 // with what fits the buffers between both, after the end
			if name == "padded bytes" {
				most = uploadBuffer / 2 // or the window would end it
			}
			n := c.flood(most, func(i int) error { return tc.write(c, i) })
			if n >= most {
				t.Errorf("%d frames were taken", n)
			}
			if code := receive(t, ended, "end"); code != http2.ErrCodeEnhanceYourCalm && code != 0 {
				t.Errorf("ended with %v", code)
			}
			if n := peak.Load(); n > 20 {
				t.Errorf("%d requests ran at a time", n)
			}
		})
	}
}

// TestHTTP2PingsUnread: a client that never reads has no more answers kept for it than
// fit the queue.
func TestHTTP2PingsUnread(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("x") },
		func(o *Options) { o.WriteTimeout = time.Second })
	c := ts.dialFrames()
	done := make(chan int, 1)
	go func() { done <- c.flood(10*effortCredit, func(int) error { return c.WritePing(false, [8]byte{}) }) }()
	receive(t, done, "end of the flood")
	if held := ts.buffers.held.Load(); held > 6*queueLimit {
		t.Errorf("%d bytes are held", held)
	}
}

// TestHTTP2HeaderBombs: headers are bounded in bytes, in frames and decoded.
func TestHTTP2HeaderBombs(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("x") })
	for name, tc := range map[string]struct {
		write func(f *frameConn) error
		want  http2.ErrCode
	}{
		"continuations": {func(f *frameConn) (err error) {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			for range headerFrames + 1 {
				err = errors.Join(err, f.WriteContinuation(1, false, nil))
			}
			return err
		}, http2.ErrCodeEnhanceYourCalm},
		"large continuations": {func(f *frameConn) (err error) {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			for range 9 {
				err = errors.Join(err, f.WriteContinuation(1, false, []byte(strings.Repeat("\x82", 16<<10))))
			}
			return err
		}, http2.ErrCodeEnhanceYourCalm},
		"endless string": {func(f *frameConn) (err error) {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0, 1, 'x', 0x7f, 0xff, 0xff, 0xff, 0x07}})
			for range 9 {
				err = errors.Join(err, f.WriteContinuation(1, false, []byte(strings.Repeat("x", 16<<10))))
			}
			return err
		}, http2.ErrCodeEnhanceYourCalm},
		"table growth": {func(f *frameConn) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x3f, 0xff, 0xff, 0x07, 0x82}, EndHeaders: true, EndStream: true})
		}, http2.ErrCodeCompression},
		"other frame between": {func(f *frameConn) error {
			return errors.Join(f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}), f.WritePing(false, [8]byte{}))
		}, http2.ErrCodeProtocol},
		"bad padding": {func(f *frameConn) error {
			f.request("POST", "/", true)
			return f.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{200, 1, 2})
		}, http2.ErrCodeProtocol},
		"bad padding of a header": {func(f *frameConn) error {
			return f.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersPadded|http2.FlagHeadersEndHeaders, 1, []byte{200, 1, 2})
		}, http2.ErrCodeProtocol},
		"large frame": {func(f *frameConn) error {
			f.request("POST", "/", true)
			return f.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, frameSize+1))
		}, http2.ErrCodeFrameSize},
	} {
		t.Run(name, func(t *testing.T) {
			c := ts.dialFrames()
			if err := tc.write(c); err != nil {
				t.Log(err) // the server need not read it all
			}
			if code, told := c.goAwayOf(); code != tc.want || !told {
				t.Errorf("ended with %v, told: %v", code, told)
			}
		})
	}
}

// TestHTTP2IndexedBomb: a few bytes that stand for much are counted decoded.
func TestHTTP2IndexedBomb(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("not reached") })
	c := ts.dialFrames()
	c.block.Reset()
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/"}, {Name: "a", Value: strings.Repeat("x", 4000)}} {
		_ = c.encoder.WriteField(f)
	}
	for range 10_000 {
		c.block.WriteByte(0x80 | 62) // the newest of the table
	}
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
		t.Fatal(err)
	}
	c.until(func(frame http2.Frame) bool {
		h, ok := frame.(*http2.MetaHeadersFrame)
		if ok && h.PseudoValue("status") != "431" {
			t.Errorf("status %s", h.PseudoValue("status"))
		}
		return ok
	})
}

// TestHTTP2OneByteWindows: a client that opens its window byte by byte is not waited for
// longer than one that does not.
func TestHTTP2OneByteWindows(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text(strings.Repeat("x", 10_000)) },
		func(o *Options) { o.WriteTimeout = 200 * time.Millisecond })
	c := ts.dialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	id := c.request("GET", "/", false)
	c.until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameHeaders })
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-tick.C:
				_ = c.WriteWindowUpdate(id, 1)
			case <-stop:
				tick.Stop()
				return
			}
		}
	}()
	c.until(isReset(id))
}

// TestHTTP2Overrun: what the windows and limits do not allow is refused.
func TestHTTP2Overrun(t *testing.T) {
	entered := make(chan struct{}, 100)
	ts := startServer(t, func(ctx context.Context, r *api.Request) *api.Response {
		entered <- struct{}{}
		<-ctx.Done()
		return text("x")
	}, func(o *Options) { o.MaxStreams = 8 })
	t.Run("stream window", func(t *testing.T) {
		c := ts.dialFrames()
		id := c.request("POST", "/", true)
		for range uploadBuffer/frameSize + 1 {
			if err := c.WriteData(id, false, make([]byte, frameSize)); err != nil {
				t.Fatal(err)
			}
		}
		c.until(func(frame http2.Frame) bool {
			r, ok := frame.(*http2.RSTStreamFrame)
			return ok && r.ErrCode == http2.ErrCodeFlowControl
		})
	})
	t.Run("connection window", func(t *testing.T) {
		c := ts.dialFrames()
		for range 5 {
			id := c.request("POST", "/", true)
			for range uploadBuffer / frameSize {
				_ = c.WriteData(id, false, make([]byte, frameSize))
			}
		}
		if code, _ := c.goAwayOf(); code != http2.ErrCodeFlowControl {
			t.Errorf("ended with %v", code)
		}
	})
	t.Run("streams", func(t *testing.T) {
		c := ts.dialFrames()
		for range 9 {
			c.request("GET", "/", false)
		}
		c.until(func(frame http2.Frame) bool {
			r, ok := frame.(*http2.RSTStreamFrame)
			return ok && r.ErrCode == http2.ErrCodeRefusedStream && r.StreamID == 17
		})
	})
	t.Run("window of the server", func(t *testing.T) {
		c := ts.dialFrames()
		_ = c.WriteWindowUpdate(0, maxWindow)
		if code, _ := c.goAwayOf(); code != http2.ErrCodeFlowControl {
			t.Errorf("ended with %v", code)
		}
	})
}

// TestHTTP2HalfClosed: a body that never ends does not hold the stream of a request that
// was answered.
func TestHTTP2HalfClosed(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("answered") }, func(o *Options) { o.MaxStreams = 2 })
	c := ts.dialFrames()
	for range 10 {
		id := c.request("POST", "/", true)
		c.until(isReset(id))
	}
}

// TestHTTP2SlowFrame: a frame that has begun is to come soon.
func TestHTTP2SlowFrame(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("x") },
		func(o *Options) { o.ReadHeaderTimeout = 50 * time.Millisecond })
	conn, err := tls.Dial("tcp", ts.secure, &tls.Config{RootCAs: ts.roots, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	newFrameConn(t, conn)
	var head [frameHead]byte
	binary.BigEndian.PutUint32(head[:], 100<<8|uint32(http2.FrameHeaders))
	head[4], head[8] = byte(http2.FlagHeadersEndHeaders), 1
	if _, err := conn.Write(head[:]); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		var timeout interface{ Timeout() bool }
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Error("the connection is still open")
		}
	}
}

// TestHTTP2Silent: a client that answers no PING is given up, and one that is idle told
// to go away.
func TestHTTP2Silent(t *testing.T) {
	ts, streams := startStreams(t, func(o *Options) {
		o.PingInterval, o.PingTimeout, o.IdleTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	})
	c := ts.dialFrames()
	c.request("GET", "/", false)
	s := receive(t, streams, "stream")
	s.over(t)
	idle := ts.dialFrames()
	if code, told := idle.goAwayOf(); code != http2.ErrCodeNo || !told {
		t.Errorf("ended with %v, told: %v", code, told)
	}
}
