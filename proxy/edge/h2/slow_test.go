package h2

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// TestHTTP2SlowReader: a client on a slow line gets all of a list, though much is on its
// way, and though it tells only of half of its window at a time what it has read, as
// browsers do.
func TestHTTP2SlowReader(t *testing.T) {
	const size, window, perSecond = 30 << 20, 6 << 20, 64 << 10
	edgetest.InPipes(t, edgetest.SlowList(size), func(t *testing.T, dial func() *edgetest.FrameConn) {
		c := dial()
		if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
			t.Fatal(err)
		}
		_ = c.WriteWindowUpdate(0, 15<<20)
		id := c.Request("GET", "/", false)
		began := time.Now()
		type arrived struct {
			size int
			ping [8]byte
			end  bool
		}
		line := make(chan arrived, 1<<20) // what is on its way
		go func() {
			defer close(line)
			for {
				frame, err := c.ReadFrame()
				if err != nil {
					return
				}
				switch f := frame.(type) {
				case *http2.DataFrame:
					line <- arrived{size: len(f.Data()), end: f.StreamEnded()}
				case *http2.PingFrame:
					line <- arrived{ping: f.Data}
				case *http2.RSTStreamFrame, *http2.GoAwayFrame:
					t.Errorf("%v after %v", f, time.Since(began))
				}
			}
		}()
		got, untold := 0, 0
		for a := range line {
			if a.size == 0 && !a.end {
				_ = c.WritePing(true, a.ping)
				continue
			}
			time.Sleep(time.Duration(a.size) * time.Second / perSecond)
			got += a.size
			if untold += a.size; untold >= window/2 {
				_ = c.WriteWindowUpdate(0, uint32(untold))
				_ = c.WriteWindowUpdate(id, uint32(untold))
				untold = 0
			}
			if a.end {
				break
			}
		}
		if got != size {
			t.Errorf("got %d bytes of %d in %v", got, size, time.Since(began))
		}
	})
}

// TestHTTP2ManySlowly: what one client reads of many lists together is enough, though of
// each it is little.
func TestHTTP2ManySlowly(t *testing.T) {
	const size, lists, perSecond = 1 << 20, 100, 512 << 10
	edgetest.InPipes(t, edgetest.SlowList(size), func(t *testing.T, dial func() *edgetest.FrameConn) {
		c := dial()
		if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}); err != nil {
			t.Fatal(err)
		}
		_ = c.WriteWindowUpdate(0, 1<<30)
		for range lists {
			c.Request("GET", "/", false)
		}
		began := time.Now()
		ended, got, resets := 0, 0, 0
		for ended+resets < lists {
			frame, err := c.ReadFrame()
			if err != nil {
				t.Errorf("after %d lists and %v, %d bytes, %d resets: %v", ended, time.Since(began), got, resets, err)
				return
			}
			switch f := frame.(type) {
			case *http2.DataFrame:
				got += len(f.Data())
				time.Sleep(time.Duration(len(f.Data())) * time.Second / perSecond)
				if f.StreamEnded() {
					ended++
				}
			case *http2.PingFrame:
				_ = c.WritePing(true, f.Data)
			case *http2.RSTStreamFrame:
				resets++
			case *http2.GoAwayFrame:
				t.Error(f, string(f.DebugData()))
			}
		}
		if resets > 0 {
			t.Errorf("%d of %d lists were reset, %d bytes came", resets, lists, got)
		}
	})
}

// TestHTTP2OldConnection: what a client did over an hour does not count when it gives up
// all its watches at once.
func TestHTTP2OldConnection(t *testing.T) {
	edgetest.InPipes(t, func(ctx context.Context, _ *api.Request) *api.Response {
		return &api.Response{Status: 200, Stream: &edgetest.StreamFunc{OnStart: func(api.StreamWriter) {}, OnStop: func() {}}}
	}, func(t *testing.T, dial func() *edgetest.FrameConn) {
		c := dial()
		ended := make(chan http2.ErrCode, 1)
		go func() { code, _ := c.GoAwayOf(); ended <- code }()
		for range maxCredit/resetCost - 10 {
			id := c.Request("GET", "/", false)
			_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
			time.Sleep(3 * time.Second)
		}
		var ids []uint32
		for range 200 {
			ids = append(ids, c.Request("GET", "/", false))
		}
		time.Sleep(time.Second)
		for _, id := range ids {
			_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		time.Sleep(time.Second)
		select {
		case code := <-ended:
			t.Errorf("the connection ended with %v", code)
		default:
		}
	})
}

// TestHTTP2ClosedAndSilent: who reads much and tells of nothing holds a stream, or an idle
// connection, no longer than others.
func TestHTTP2ClosedAndSilent(t *testing.T) {
	const size = 8 << 20
	for name, window := range map[string]uint32{"closed window": size - 1, "idle": size} {
		t.Run(name, func(t *testing.T) {
			edgetest.InPipes(t, edgetest.SlowList(size), func(t *testing.T, dial func() *edgetest.FrameConn) {
				c := dial()
				if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
					t.Fatal(err)
				}
				_ = c.WriteWindowUpdate(0, 15<<20)
				c.Request("GET", "/", false)
				began := time.Now()
				for {
					frame, err := c.ReadFrame()
					if err != nil {
						break
					}
					if kind := frame.Header().Type; kind == http2.FrameRSTStream || kind == http2.FrameGoAway {
						break
					}
				}
				if held, most := time.Since(began), defaults.IdleTimeout+time.Second; held > most || name != "idle" && held > defaults.WriteTimeout+time.Second {
					t.Errorf("%v after %v", name, held)
				}
			})
		})
	}
}

// TestHTTP2SmallReads: a client that reads in small pieces, and says so with two window
// updates for each, as x/net's does, gets all of a list.
func TestHTTP2SmallReads(t *testing.T) {
	const piece = 1 << 10
	size := soak.Cases(16<<20, 48<<20)
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, BodyTo: bytes.NewReader(make([]byte, size)), Length: int64(size), Ready: true}
	})
	conn := ts.DialH2()
	c := edgetest.NewFrameConn(t, conn)
	_ = conn.SetDeadline(time.Now().Add(edgetest.Timeout))
	id := c.Request("GET", "/", false)
	var updates bytes.Buffer
	fr := http2.NewFramer(&updates, nil)
	for got := 0; got < size; {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("after %d bytes: %v", got, err)
		}
		switch f := frame.(type) {
		case *http2.DataFrame:
			for left := len(f.Data()); left > 0; left -= piece {
				_ = fr.WriteWindowUpdate(0, uint32(min(left, piece)))
				_ = fr.WriteWindowUpdate(id, uint32(min(left, piece)))
			}
			got += len(f.Data())
			if _, err := updates.WriteTo(conn); err != nil {
				t.Fatalf("after %d bytes: %v", got, err)
			}
		case *http2.GoAwayFrame:
			t.Fatalf("after %d bytes: %v", got, f)
		}
	}
}

// TestHTTP2UnreadEvents: events for a client that does not read hold up no others, and
// its watch ends when the write timeout has passed.
func TestHTTP2UnreadEvents(t *testing.T) {
	for _, secure := range []bool{true, false} {
		t.Run(fmt.Sprintf("TLS %v", secure), func(t *testing.T) {
			writers, stopped := make(chan api.StreamWriter, 1), make(chan struct{}, 2)
			ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
				return &api.Response{Status: 200, Stream: &edgetest.StreamFunc{
					OnStart: func(w api.StreamWriter) { writers <- w },
					OnStop:  func() { stopped <- struct{}{} },
				}}
			}, func(o *edge.Options) { o.WriteTimeout = 2 * edgetest.Timeout })
			watch := func() (api.SharedWriter, *edgetest.FrameConn) {
				var conn net.Conn
				if secure {
					conn = ts.DialH2()
				} else {
					conn = ts.Dial()
				}
				c := edgetest.NewFrameConn(t, conn, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
				_ = c.WriteWindowUpdate(0, 1<<30)
				_ = c.WritePing(false, [8]byte{})
				c.Until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FramePing }) // the windows are known
				c.Request("GET", "/", false)
				return edgetest.Receive(t, writers, "watch").(api.SharedWriter), c
			}
			deaf, _ := watch()
			listening, c := watch()
			events := make(chan struct{}, 1)
			go func() {
				for {
					frame, err := c.ReadFrame()
					if err != nil {
						return
					}
					if data, ok := frame.(*http2.DataFrame); ok && len(data.Data()) > 0 {
						events <- struct{}{}
					}
				}
			}()
			flushes := make(chan struct{})
			piece := [][]byte{make([]byte, 15000)}
			full := 0
			for full < 3 {
				if deaf.QueueFrames(piece) {
					full = 0
				} else {
					full++
				}
				if !listening.QueueFrames([][]byte{[]byte("event")}) {
					t.Fatal("an event for a client that reads is not taken")
				}
				go func() { deaf.Flush(); listening.Flush(); flushes <- struct{}{} }()
				edgetest.Receive(t, flushes, "end of Flush")
				edgetest.Receive(t, events, "event")
			}
			if held := ts.Held(); held > 4*queueLimit {
				t.Errorf("%d bytes are held", held)
			}
			deaf.Abort()
			edgetest.Receive(t, stopped, "end of the watch")
		})
	}
}

// TestHTTP2WatchTooFarBehind: a watch whose client does not read ends with the write
// timeout, and its connection holds nothing afterwards.
func TestHTTP2WatchTooFarBehind(t *testing.T) {
	writers, stopped := make(chan api.StreamWriter, 1), make(chan struct{})
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Stream: &edgetest.StreamFunc{
			OnStart: func(w api.StreamWriter) { writers <- w },
			OnStop:  func() { close(stopped) },
		}}
	}, func(o *edge.Options) { o.WriteTimeout = 200 * time.Millisecond })
	c := ts.DialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	_ = c.WriteWindowUpdate(0, 1<<30)
	c.Request("GET", "/", false)
	w := edgetest.Receive(t, writers, "watch").(api.SharedWriter)
	failed := make(chan error, 1)
	go func() {
		var err error
		for piece := [][]byte{make([]byte, 15000)}; err == nil; {
			if !w.QueueFrames(piece) {
				err = w.WriteFrames(piece)
			}
			w.Flush()
		}
		failed <- err
	}()
	if err := edgetest.Receive(t, failed, "error"); !errors.Is(err, errClientLeft) && !edgetest.IsTimeout(err) {
		t.Errorf("writing: %v", err)
	}
	edgetest.Receive(t, stopped, "end of the watch")
	ts.HoldsNothing()
}

// TestHTTP2BusyConnection: the time for a frame begins with the frame, also where the
// connection never falls silent between two.
func TestHTTP2BusyConnection(t *testing.T) {
	got := make(chan error, 1)
	edgetest.InBubble(t, func(_ context.Context, r *api.Request) *api.Response {
		_, err := io.Copy(io.Discard, r.Body)
		got <- err
		return edgetest.Text("read")
	}, func(t *testing.T, dial func() *edgetest.FrameConn, conn func() net.Conn) {
		c := dial()
		go func() {
			for {
				if _, err := c.ReadFrame(); err != nil {
					return
				}
			}
		}()
		c.Request("POST", "/", true)
		var b bytes.Buffer
		_ = http2.NewFramer(&b, nil).WriteData(1, false, make([]byte, 91))
		one := b.Bytes()
		// Each write ends within the head of a frame.
		_, err := conn().Write(one[:5])
		next := append(bytes.Clone(one[5:]), one[:5]...)
		for began := time.Now(); err == nil && time.Since(began) < 10*defaults.ReadHeaderTimeout; time.Sleep(defaults.ReadHeaderTimeout / 10) {
			_, err = conn().Write(next)
		}
		if err == nil {
			_, err = conn().Write(one[5:])
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := c.WriteData(1, true, nil); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Errorf("the body ended with %v", err)
		}
	})
}

// TestHTTP2SlowHeader: all frames of a header are to come within the time for one.
func TestHTTP2SlowHeader(t *testing.T) {
	edgetest.InBubble(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("not reached") },
		func(t *testing.T, dial func() *edgetest.FrameConn, _ func() net.Conn) {
			c := dial()
			go func() {
				for {
					if _, err := c.ReadFrame(); err != nil {
						return
					}
				}
			}()
			began := time.Now()
			err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			for err == nil {
				time.Sleep(defaults.ReadHeaderTimeout / 16)
				err = c.WriteContinuation(1, false, []byte{0x87})
			}
			if took := time.Since(began); took > 2*defaults.ReadHeaderTimeout-defaults.ReadHeaderTimeout/2 {
				t.Errorf("the connection lived %v", took)
			}
		})
}

// TestHTTP2HalfFrame: an answer does not wait for the rest of the frame behind its
// request.
func TestHTTP2HalfFrame(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("x") })
	conn := ts.DialH2()
	c := edgetest.NewFrameConn(t, conn)
	c.Request("GET", "/", false)
	c.Until(edgetest.IsEnd(1))
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x82, 0x87, 0x84, 0x41, 1, 'x'}, EndHeaders: true, EndStream: true})
	b.Write([]byte{0, 0, 8, 6, 0}) // a PING begins
	if _, err := conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	c.Until(edgetest.IsEnd(3))
}

// TestHTTP2OneByteWindows: a client that opens its window byte by byte is not waited for
// longer than one that does not.
func TestHTTP2OneByteWindows(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text(strings.Repeat("x", 10_000)) },
		func(o *edge.Options) { o.WriteTimeout = 200 * time.Millisecond })
	c := ts.DialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	id := c.Request("GET", "/", false)
	c.Until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FrameHeaders })
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
	c.Until(edgetest.IsReset(id))
}

// TestHTTP2SlowFrame: a frame that has begun is to come soon.
func TestHTTP2SlowFrame(t *testing.T) {
	edgetest.InBubble(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("x") },
		func(t *testing.T, dial func() *edgetest.FrameConn, conn func() net.Conn) {
			c := dial()
			var head [frameHead]byte
			binary.BigEndian.PutUint32(head[:], 100<<8|uint32(http2.FrameHeaders))
			head[4], head[8] = byte(http2.FlagHeadersEndHeaders), 1
			if _, err := conn().Write(head[:]); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for err := error(nil); err == nil; {
				_, err = c.ReadFrame()
			}
			if took := time.Since(began); took < defaults.ReadHeaderTimeout/2 || took > defaults.ReadHeaderTimeout {
				t.Errorf("the connection lived %v", took)
			}
		})
}

// TestHTTP2Silent: a client that answers no PING is given up, and one that is idle told
// to go away.
func TestHTTP2Silent(t *testing.T) {
	var streams chan *edgetest.RecordingStream
	edgetest.InBubble(t, func(context.Context, *api.Request) *api.Response {
		s := edgetest.NewRecordingStream()
		streams <- s
		return s.Response()
	}, func(t *testing.T, dial func() *edgetest.FrameConn, _ func() net.Conn) {
		streams = make(chan *edgetest.RecordingStream, 1) // of the bubble
		began := time.Now()
		c := dial()
		c.Request("GET", "/", false)
		(<-streams).Over(t)
		if took, want := time.Since(began), defaults.PingInterval+defaults.PingTimeout; took > want {
			t.Errorf("given up after %v, want %v", took, want)
		}
		began = time.Now()
		idle := dial()
		if code, ok := idle.GoAwayOf(); code != http2.ErrCodeNo || !ok {
			t.Errorf("ended with %v, told: %v", code, ok)
		}
		if took := time.Since(began); took > defaults.IdleTimeout {
			t.Errorf("told after %v", took)
		}
	})
}
