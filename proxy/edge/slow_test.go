package edge

import (
	"bytes"
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
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
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Handler: h})
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
				if held, most := time.Since(began), DefaultIdleTimeout+time.Second; held > most || name != "idle" && held > DefaultWriteTimeout+time.Second {
					t.Errorf("%v after %v", name, held)
				}
			})
		})
	}
}
