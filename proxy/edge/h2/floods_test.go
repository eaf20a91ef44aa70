package h2

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// The tests in this file attack an HTTP/2 server as a client, and check that a number bounds each
// attack.
//
// The table lists the attacks that brought down HTTP/2 servers, the bound here, and the test
// (TestHTTP2...):
//
//	rapid reset                  resetCost, earned back by complete answers only;
//	                             reset requests count for MaxStreams                 RapidReset, Floods
//	requests to be reset         resetCost                                           MadeYouReset, Floods, Malformed
//	CONTINUATION flood           headerFrames, ReadHeaderTimeout for all             HeaderBombs, SlowHeader
//	header bombs                 headerLimit decoded, twice that encoded             HeaderBombs, IndexedBomb
//	cookies in crumbs            joined once                                         Crumbs
//	growth of HPACK's table      headerTable; answers use none                       HeaderBombs
//	SETTINGS, PING, PRIORITY     frameCost                                           Floods
//	settings in one frame        mostSettings                                        HeaderBombs
//	WINDOW_UPDATE                frameCost, or one for updateBytes sent              Floods, SmallReads
//	windows of 0 and 1 byte      WriteTimeout for half a MiB                         ClosedWindow, OneByteWindows
//	answers taken in silence     a PING for each pingAfter, answered in time         ClosedAndSilent
//	uploads that nobody reads    windows are small from edge.LargeAllowed on;
//	                             reset beyond the user's share                       CrowdedUploads, UnreadUploads,
//	                                                                                 HoarderPays
//	answers to closed windows,   edge.WaitingAllowed, shared by the users; strangers'
//	or not read                  edge.AnonymousAllowed; reset beyond that            WindowsClosed, AnswersUnread
//	answers held back unread     nothing is from edge.LargeAllowed on                Hoard
//	reading on after an error    only what is queued is sent                         Goodbye
//	answers that nobody reads    queueLimit, framesAtOnce; then no reading;
//	                             the end for edge.AnonymousAllowed                   PingsUnread, HeadUnread,
//	                                                                                 StrangersHoard
//	events that nobody reads     queueLimit, WriteTimeout; others go on              UnreadEvents, WatchTooFarBehind
//	streams that never end       BodyIdleTimeout, PING and its timeout               BodyThatNeverComes, Silent
//	tunnels that nobody reads    the stream's window, for upgrades only; the
//	                             connection's beyond a share of
//	                             edge.UnreadAllowed; reset as uploads are            UpgradeWindows, UpgradesUnread
//	half-closed bodies           reset when answered; frameCost                      HalfClosed, UnwantedData
//	DATA behind a reset          the stream's window, then resetCost                 LateData, UnwantedData
//	frames that never end        ReadHeaderTimeout, from their beginning             SlowFrame, BusyConnection
//	more than the windows        errors of stream and connection                     Overrun
//	bad padding, large frames    errors of the connection                            HeaderBombs
//	padding instead of data      frameCost, and one for padded bytes                 Floods
//	requests behind GOAWAY       resetCost                                           BehindGoAway
//	GOAWAY that nobody heeds     goAwayWait                                          GoAwayInTime
//	GOAWAY and no end after it   PingTimeout, lingerBytes                            GoAwaySlowReader
//	smuggled fields              malformed                                           Malformed

// briefLinger is for tests whose clients go on sending and need not read the end of the connection.
const briefLinger = 20 * time.Millisecond

// TestHTTP2Floods: frames that ask for nothing of use are taken up to a credit.
func TestHTTP2Floods(t *testing.T) {
	for name, tc := range map[string]struct {
		stream bool // with an open request that has a body
		write  func(f *edgetest.FrameConn, i int) error
	}{
		"settings": {false, func(f *edgetest.FrameConn, _ int) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 14})
		}},
		"settings acks": {false, func(f *edgetest.FrameConn, _ int) error { return f.WriteSettingsAck() }},
		"pings":         {false, func(f *edgetest.FrameConn, _ int) error { return f.WritePing(false, [8]byte{}) }},
		"ping acks":     {false, func(f *edgetest.FrameConn, _ int) error { return f.WritePing(true, [8]byte{}) }},
		"priorities": {false, func(f *edgetest.FrameConn, i int) error {
			return f.WritePriority(uint32(2*i+1), http2.PriorityParam{StreamDep: 0})
		}},
		"window updates": {false, func(f *edgetest.FrameConn, _ int) error { return f.WriteWindowUpdate(0, 1) }},
		"stream updates": {true, func(f *edgetest.FrameConn, _ int) error { return f.WriteWindowUpdate(1, 1) }},
		"empty data":     {true, func(f *edgetest.FrameConn, _ int) error { return f.WriteData(1, false, nil) }},
		"padding":        {true, func(f *edgetest.FrameConn, _ int) error { return f.WriteDataPadded(1, false, nil, make([]byte, 3)) }},
		"padded bytes": {true, func(f *edgetest.FrameConn, _ int) error {
			return f.WriteDataPadded(1, false, []byte("x"), make([]byte, 255))
		}},
		"unknown frames":      {false, func(f *edgetest.FrameConn, _ int) error { return f.WriteRawFrame(0xfa, 0, 0, nil) }},
		"data of no stream":   {true, func(f *edgetest.FrameConn, _ int) error { return f.WriteData(3, false, []byte("x")) }},
		"resets of no stream": {true, func(f *edgetest.FrameConn, _ int) error { return f.WriteRSTStream(1, http2.ErrCodeCancel) }},
		"malformed requests":  {false, func(f *edgetest.FrameConn, _ int) error { f.Request("get x", "/", false); return f.Failed() }},
		"requests reset": {false, func(f *edgetest.FrameConn, _ int) error {
			return f.WriteRSTStream(f.Request("GET", "/", false), http2.ErrCodeCancel)
		}},
		"requests to be reset": {false, func(f *edgetest.FrameConn, _ int) error {
			return f.WriteRawFrame(http2.FrameWindowUpdate, 0, f.Request("GET", "/", false), make([]byte, 4))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var running, peak atomic.Int32
			ts := edgetest.Start(t, func(ctx context.Context, r *api.Request) *api.Response {
				n := running.Add(1)
				for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() { //nolint:revive // Until it is the highest.
				}
				defer running.Add(-1)
				<-ctx.Done()
				return edgetest.Text("late")
			}, func(o *edge.Options) { o.MaxStreams, o.LingerTimeout = 20, briefLinger })
			c := ts.DialFrames()
			ended := make(chan http2.ErrCode, 1)
			c.Tolerant()
			go func() { code, _ := c.GoAwayOf(); ended <- code }()
			if tc.stream {
				c.Request("POST", "/", true)
				if name == "data of no stream" {
					_ = c.WriteRSTStream(c.Request("POST", "/", true), http2.ErrCodeCancel)
				}
			}
			most := 1_000_000 // with what fits the buffers between both, after the end
			if name == "padded bytes" {
				most = uploadBuffer / 2 // or the window would end it
			}
			n := c.Flood(most, func(i int) error { return tc.write(c, i) })
			if n >= most {
				t.Errorf("%d frames were taken", n)
			}
			if code := edgetest.Receive(t, ended, "end"); code != http2.ErrCodeEnhanceYourCalm && code != 0 {
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
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("x") },
		func(o *edge.Options) { o.WriteTimeout = time.Second })
	c := ts.DialFrames()
	done := make(chan int, 1)
	go func() { done <- c.Flood(10*maxCredit, func(int) error { return c.WritePing(false, [8]byte{}) }) }()
	edgetest.Receive(t, done, "end of the flood")
	if held := ts.Held(); held > 6*queueLimit {
		t.Errorf("%d bytes are held", held)
	}
}

// TestHTTP2Overrun: what the windows and limits do not allow is refused.
func TestHTTP2Overrun(t *testing.T) {
	entered := make(chan struct{}, 100)
	ts := edgetest.Start(t, func(ctx context.Context, r *api.Request) *api.Response {
		entered <- struct{}{}
		<-ctx.Done()
		return edgetest.Text("x")
	}, func(o *edge.Options) { o.MaxStreams = 8 })
	t.Run("stream window", func(t *testing.T) {
		c := ts.DialFrames()
		id := c.Request("POST", "/", true)
		for range uploadBuffer/frameSize + 1 {
			if err := c.WriteData(id, false, make([]byte, frameSize)); err != nil {
				t.Fatal(err)
			}
		}
		c.Until(func(frame http2.Frame) bool {
			r, ok := frame.(*http2.RSTStreamFrame)
			return ok && r.ErrCode == http2.ErrCodeFlowControl
		})
	})
	t.Run("connection window", func(t *testing.T) {
		c := ts.DialFrames()
		for range 5 {
			id := c.Request("POST", "/", true)
			for range uploadBuffer / frameSize {
				_ = c.WriteData(id, false, make([]byte, frameSize))
			}
		}
		if code, _ := c.GoAwayOf(); code != http2.ErrCodeFlowControl {
			t.Errorf("ended with %v", code)
		}
	})
	t.Run("streams", func(t *testing.T) {
		c := ts.DialFrames()
		for range 9 {
			c.Request("GET", "/", false)
		}
		c.Until(func(frame http2.Frame) bool {
			r, ok := frame.(*http2.RSTStreamFrame)
			return ok && r.ErrCode == http2.ErrCodeRefusedStream && r.StreamID == 17
		})
	})
	t.Run("window of the server", func(t *testing.T) {
		c := ts.DialFrames()
		_ = c.WriteWindowUpdate(0, maxWindow)
		if code, _ := c.GoAwayOf(); code != http2.ErrCodeFlowControl {
			t.Errorf("ended with %v", code)
		}
	})
}

// TestHTTP2HalfClosed: a body that never ends does not hold the stream of a request that
// was answered.
func TestHTTP2HalfClosed(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("answered") }, func(o *edge.Options) { o.MaxStreams = 2 })
	c := ts.DialFrames()
	for range soak.Cases(3, 10) { // more than MaxStreams
		id := c.Request("POST", "/", true)
		c.Until(edgetest.IsReset(id))
	}
}

// TestHTTP2HeadUnread: what has no body is not answered without end either to a client
// that does not read.
func TestHTTP2HeadUnread(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 401, Header: api.Header{{Name: "X-Long", Value: strings.Repeat("x", 200)}}}
	})
	conn := ts.DialH2()
	c := edgetest.NewFrameConn(t, conn)
	c.Request("HEAD", "/", false, "a", "b")
	c.Until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameHeaders })
	var b bytes.Buffer
	c.Framer = http2.NewFramer(&b, nil)
	c.Request("HEAD", "/", false, "a", "b")
	if b.Len()%2 != 0 {
		t.Fatalf("a request takes %d bytes", b.Len())
	}
	_, _ = conn.Write(b.Next(1)) // from here on no buffer of an even size ends with a frame
	most := int64(0)
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	for err := error(nil); err == nil && c.NextID < 800_000; {
		for b.Len() < 16<<10 {
			c.Request("HEAD", "/", false, "a", "b")
		}
		_, err = conn.Write(b.Next(16 << 10))
		rest := bytes.Clone(b.Bytes())
		b.Reset()
		b.Write(rest)
		most = max(most, ts.Held())
	}
	_ = conn.NetConn().Close() // a goodbye would wait for the server
	if most > 12*queueLimit {
		t.Errorf("%d bytes were held", most)
	}
}

// TestHTTP2RapidReset: requests that are given up at once earn nothing, also where their
// handlers end at once.
func TestHTTP2RapidReset(t *testing.T) {
	var calls atomic.Int64
	ts := edgetest.Start(t, func(ctx context.Context, _ *api.Request) *api.Response {
		calls.Add(1)
		<-ctx.Done()
		return edgetest.Text("late")
	}, func(o *edge.Options) { o.LingerTimeout = briefLinger })
	c := ts.DialFrames()
	c.Tolerant()
	ended := make(chan http2.ErrCode, 1)
	go func() { code, _ := c.GoAwayOf(); ended <- code }()
	began := time.Now()
	c.Flood(1_000_000, func(int) error {
		id := c.Request("GET", "/", false)
		return errors.Join(c.Failed(), c.WriteRSTStream(id, http2.ErrCodeCancel))
	})
	if code := edgetest.Receive(t, ended, "end"); code != http2.ErrCodeEnhanceYourCalm && code != 0 {
		t.Errorf("ended with %v", code)
	}
	seconds := int64(time.Since(began)/time.Second) + 2
	if n, most := calls.Load(), (maxCredit+seconds*creditPerSecond)/resetCost; n > most {
		t.Errorf("%d handlers were called, want at most %d", n, most)
	}
}

// TestHTTP2BehindGoAway: requests that nobody serves any more are not taken without end.
func TestHTTP2BehindGoAway(t *testing.T) {
	release := make(chan struct{})
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { <-release; return edgetest.Text("x") })
	c := ts.DialFrames()
	c.Request("GET", "/", false)
	over := make(chan error, 1)
	c.Until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameSettings })
	_ = c.WritePing(false, [8]byte{})
	c.Until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FramePing }) // the request is known
	go func() { over <- ts.Shutdown(context.Background()) }()
	c.Until(func(frame http2.Frame) bool {
		p, ok := frame.(*http2.PingFrame)
		if ok {
			_ = c.WritePing(true, p.Data)
		}
		return ok
	})
	c.Until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameGoAway })
	c.Tolerant()
	ended := make(chan http2.ErrCode, 1)
	go func() { code, _ := c.GoAwayOf(); ended <- code }()
	if n := c.Flood(1_000_000, func(int) error { c.Request("GET", "/", false); return c.Failed() }); n == 1_000_000 {
		t.Errorf("%d requests were taken", n)
	}
	edgetest.Receive(t, ended, "end")
	close(release)
	if err := edgetest.Receive(t, over, "end of Shutdown"); err != nil {
		t.Error(err)
	}
}

// TestHTTP2UnwantedData: what is sent for a body that nobody reads is not free.
func TestHTTP2UnwantedData(t *testing.T) {
	for name, size := range map[string]int{"/watch": 1, "/answered": 1, "/answered in large frames": frameSize} {
		t.Run(name, func(t *testing.T) {
			path, _, _ := strings.Cut(name, " ")
			data := make([]byte, size)
			ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
				if r.Path == "/watch" {
					return &api.Response{Status: 200, Stream: edgetest.LateStream(func(api.StreamWriter) {})}
				}
				return edgetest.Text("answered")
			}, func(o *edge.Options) { o.LingerTimeout = briefLinger })
			c := ts.DialFrames()
			id := c.Request("POST", path, true)
			ended := make(chan struct{})
			go func() { _, _ = c.GoAwayOf(); close(ended) }()
			n := c.Flood(1_000_000, func(int) error { return c.WriteData(id, false, data) })
			if n == 1_000_000 {
				t.Errorf("%d frames were taken", n)
			}
			edgetest.Receive(t, ended, "end")
		})
	}
}

// TestHTTP2LateData: what clients have sent of many uploads at once, before they know that
// nobody wants them, does not end the connection.
func TestHTTP2LateData(t *testing.T) {
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response { return edgetest.Text(r.Method) })
	c := ts.DialFrames()
	reset := map[uint32]bool{}
	for len(reset) < defaults.MaxStreams {
		reset[c.Request("POST", "/", true)] = true
	}
	left := len(reset)
	c.Until(func(frame http2.Frame) bool {
		if r, ok := frame.(*http2.RSTStreamFrame); ok && r.ErrCode == http2.ErrCodeNo {
			left--
		}
		return left == 0
	})
	data := make([]byte, 4*updateBytes)
	for range uploadBuffer / len(data) / 8 {
		for id := range reset {
			if err := c.WriteData(id, false, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	next := c.Request("GET", "/", false)
	c.Until(func(frame http2.Frame) bool {
		switch f := frame.(type) {
		case *http2.GoAwayFrame:
			t.Fatal(f)
		case *http2.RSTStreamFrame:
			t.Errorf("reset again: %v", f)
		}
		return edgetest.IsEnd(next)(frame)
	})
}

// TestHTTP2LateTrailers: what a client sent before it learned that its request is over is
// no fault of the connection.
func TestHTTP2LateTrailers(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("answered") })
	c := ts.DialFrames()
	id := c.Request("POST", "/", true)
	c.Until(edgetest.IsReset(id))
	if err := c.WriteData(id, false, []byte("more")); err != nil {
		t.Fatal(err)
	}
	c.Trailers(id, "checksum", "1")
	next := c.Request("GET", "/", false)
	c.Until(func(frame http2.Frame) bool {
		if g, ok := frame.(*http2.GoAwayFrame); ok {
			t.Fatal(g)
		}
		if r, ok := frame.(*http2.RSTStreamFrame); ok {
			t.Errorf("reset again: %v", r)
		}
		return edgetest.IsEnd(next)(frame)
	})
}
