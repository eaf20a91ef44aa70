package edge

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp/fasthttputil"
	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// pipes is a listener whose connections are pipes without room, for a bubble.
type pipes struct{ conns chan net.Conn }

func (p *pipes) Accept() (net.Conn, error) {
	if nc, ok := <-p.conns; ok {
		return nc, nil
	}
	return nil, net.ErrClosed
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p *pipes) Close() error { close(p.conns); return nil }

// inPipes has f talk to a server whose clock, and f's, is a bubble's.
func inPipes(t *testing.T, h handlerFunc, f func(t *testing.T, dial func() *frameConn)) {
	bubble.Test(t, func(t *testing.T) {
		s, err := newServer(Options{Handler: h})
		if err != nil {
			t.Fatal(err)
		}
		ln := &pipes{conns: make(chan net.Conn)}
		if err := s.Serve(ln, api.ListenerSidecar); err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		f(t, func() *frameConn {
			ln.conns <- far
			c := newFrameConn(t, near)
			_ = near.SetDeadline(time.Time{})
			return c
		})
		_ = near.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// slowList answers with a list of size bytes.
func slowList(size int) handlerFunc {
	list := make([]byte, size)
	return func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, BodyTo: bytes.NewReader(list), Length: int64(size), Ready: true}
	}
}

// TestHTTP2SlowReader: a client on a slow line gets all of a list, though much is on its
// way, and though it tells only of half of its window at a time what it has read, as
// browsers do.
func TestHTTP2SlowReader(t *testing.T) {
	const size, window, perSecond = 30 << 20, 6 << 20, 64 << 10
	inPipes(t, slowList(size), func(t *testing.T, dial func() *frameConn) {
		c := dial()
		if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
			t.Fatal(err)
		}
		_ = c.WriteWindowUpdate(0, 15<<20)
		id := c.request("GET", "/", false)
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
	inPipes(t, slowList(size), func(t *testing.T, dial func() *frameConn) {
		c := dial()
		if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}); err != nil {
			t.Fatal(err)
		}
		_ = c.WriteWindowUpdate(0, 1<<30)
		for range lists {
			c.request("GET", "/", false)
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
	inPipes(t, func(ctx context.Context, _ *api.Request) *api.Response {
		return &api.Response{Status: 200, Stream: &streamFunc{start: func(api.StreamWriter) {}, stop: func() {}}}
	}, func(t *testing.T, dial func() *frameConn) {
		c := dial()
		ended := make(chan http2.ErrCode, 1)
		go func() { code, _ := c.goAwayOf(); ended <- code }()
		for range effortCredit/effortReset - 10 {
			id := c.request("GET", "/", false)
			_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
			time.Sleep(3 * time.Second)
		}
		var ids []uint32
		for range 200 {
			ids = append(ids, c.request("GET", "/", false))
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
			inPipes(t, slowList(size), func(t *testing.T, dial func() *frameConn) {
				c := dial()
				if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
					t.Fatal(err)
				}
				_ = c.WriteWindowUpdate(0, 15<<20)
				c.request("GET", "/", false)
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
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, BodyTo: bytes.NewReader(make([]byte, size)), Length: int64(size), Ready: true}
	})
	conn := ts.dialH2()
	c := newFrameConn(t, conn)
	_ = conn.SetDeadline(time.Now().Add(patience))
	id := c.request("GET", "/", false)
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
			ts := startServer(t, func(context.Context, *api.Request) *api.Response {
				return &api.Response{Status: 200, Stream: &streamFunc{
					start: func(w api.StreamWriter) { writers <- w },
					stop:  func() { stopped <- struct{}{} },
				}}
			}, func(o *Options) { o.WriteTimeout = 2 * patience })
			watch := func() (api.SharedWriter, *frameConn) {
				var conn net.Conn
				if secure {
					conn = ts.dialH2()
				} else {
					conn = ts.dial()
				}
				c := newFrameConn(t, conn, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
				_ = c.WriteWindowUpdate(0, 1<<30)
				_ = c.WritePing(false, [8]byte{})
				c.until(func(frame http2.Frame) bool { return frame.Header().Type == http2.FramePing }) // the windows are known
				c.request("GET", "/", false)
				return receive(t, writers, "watch").(api.SharedWriter), c
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
				receive(t, flushes, "end of Flush")
				receive(t, events, "event")
			}
			if held := ts.buffers.held.Load(); held > 4*queueLimit {
				t.Errorf("%d bytes are held", held)
			}
			deaf.Abort()
			receive(t, stopped, "end of the watch")
		})
	}
}

// TestHTTP2WatchTooFarBehind: a watch whose client does not read ends with the write
// timeout, and its connection holds nothing afterwards.
func TestHTTP2WatchTooFarBehind(t *testing.T) {
	writers, stopped := make(chan api.StreamWriter, 1), make(chan struct{})
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Stream: &streamFunc{
			start: func(w api.StreamWriter) { writers <- w },
			stop:  func() { close(stopped) },
		}}
	}, func(o *Options) { o.WriteTimeout = 200 * time.Millisecond })
	c := ts.dialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	_ = c.WriteWindowUpdate(0, 1<<30)
	c.request("GET", "/", false)
	w := receive(t, writers, "watch").(api.SharedWriter)
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
	if err := receive(t, failed, "error"); !errors.Is(err, errClientLeft) && !isTimeout(err) {
		t.Errorf("writing: %v", err)
	}
	receive(t, stopped, "end of the watch")
	ts.holdsNothing()
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// inMemory is a listener whose connections are in memory, with room for what is not read at
// once, and whose timeouts are told as those of sockets are.
type inMemory struct{ *fasthttputil.InmemoryListener }

func (l inMemory) Accept() (net.Conn, error) {
	nc, err := l.InmemoryListener.Accept()
	return inMemoryConn{nc}, err
}

type inMemoryConn struct{ net.Conn }

func (c inMemoryConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, timeoutOf(err)
}

func (c inMemoryConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, timeoutOf(err)
}

func timeoutOf(err error) error {
	if errors.Is(err, fasthttputil.ErrTimeout) {
		return os.ErrDeadlineExceeded // a net.Error
	}
	return err
}

// inBubble has f talk to a server whose clock, and f's, is a bubble's.
func inBubble(t *testing.T, h handlerFunc, f func(t *testing.T, dial func() *frameConn, conn func() net.Conn)) {
	bubble.Test(t, func(t *testing.T) {
		s, err := newServer(Options{Handler: h})
		if err != nil {
			t.Fatal(err)
		}
		ln := fasthttputil.NewInmemoryListener()
		if err := s.Serve(inMemory{ln}, api.ListenerSidecar); err != nil {
			t.Fatal(err)
		}
		var last net.Conn
		f(t, func() *frameConn {
			if last, err = ln.Dial(); err != nil {
				t.Fatal(err)
			}
			c := newFrameConn(t, last)
			_ = last.SetDeadline(time.Time{})
			return c
		}, func() net.Conn { return last })
		_ = last.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestHTTP2BusyConnection: the time for a frame begins with the frame, also where the
// connection never falls silent between two.
func TestHTTP2BusyConnection(t *testing.T) {
	got := make(chan error, 1)
	inBubble(t, func(_ context.Context, r *api.Request) *api.Response {
		_, err := io.Copy(io.Discard, r.Body)
		got <- err
		return text("read")
	}, func(t *testing.T, dial func() *frameConn, conn func() net.Conn) {
		c := dial()
		go func() {
			for {
				if _, err := c.ReadFrame(); err != nil {
					return
				}
			}
		}()
		c.request("POST", "/", true)
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
	inBubble(t, func(context.Context, *api.Request) *api.Response { return text("not reached") },
		func(t *testing.T, dial func() *frameConn, _ func() net.Conn) {
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
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("x") })
	conn := ts.dialH2()
	c := newFrameConn(t, conn)
	c.request("GET", "/", false)
	c.until(isEnd(1))
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x82, 0x87, 0x84, 0x41, 1, 'x'}, EndHeaders: true, EndStream: true})
	b.Write([]byte{0, 0, 8, 6, 0}) // a PING begins
	if _, err := conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	c.until(isEnd(3))
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

// TestHTTP2SlowFrame: a frame that has begun is to come soon.
func TestHTTP2SlowFrame(t *testing.T) {
	inBubble(t, func(context.Context, *api.Request) *api.Response { return text("x") },
		func(t *testing.T, dial func() *frameConn, conn func() net.Conn) {
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
	var streams chan *recordingStream
	inBubble(t, func(context.Context, *api.Request) *api.Response {
		s := newRecordingStream()
		streams <- s
		return s.response()
	}, func(t *testing.T, dial func() *frameConn, _ func() net.Conn) {
		streams = make(chan *recordingStream, 1) // of the bubble
		began := time.Now()
		c := dial()
		c.request("GET", "/", false)
		(<-streams).over(t)
		if took, want := time.Since(began), defaults.PingInterval+defaults.PingTimeout; took > want {
			t.Errorf("given up after %v, want %v", took, want)
		}
		began = time.Now()
		idle := dial()
		if code, told := idle.goAwayOf(); code != http2.ErrCodeNo || !told {
			t.Errorf("ended with %v, told: %v", code, told)
		}
		if took := time.Since(began); took > defaults.IdleTimeout {
			t.Errorf("told after %v", took)
		}
	})
}
