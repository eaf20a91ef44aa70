package edge

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
)

type zzSlowConn struct {
	net.Conn
	debt time.Duration
}

func (c *zzSlowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.debt += time.Duration(n) * time.Second / (16 << 20) // 16 MB/s
	if c.debt > 5*time.Millisecond {
		began := time.Now()
		time.Sleep(c.debt)
		c.debt -= time.Since(began)
	}
	return n, err
}

// a list in gzip read by a standard Go client over a link of 16 MB/s
func TestZZLink(t *testing.T) {
	z := zzGzip(384 << 20)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		return &api.Response{Status: 200, Header: api.Header{{Name: "Content-Encoding", Value: "gzip"}}, BodyTo: bytes.NewReader(z), Length: int64(len(z)), Ready: true}
	})
	c := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: ts.roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &zzSlowConn{Conn: nc}, err
		}}}
	began := time.Now()
	resp, err := c.Get("https://" + ts.secure + "/")
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	t.Logf("%s %d MB plain of %d MB in gzip, %v: %v, gzip %v", resp.Proto, n>>20, len(z)>>20, time.Since(began), err, resp.Uncompressed)
	if err != nil {
		t.Error("cut")
	}
}

// one client that does not read: Flush of another connection's frames waits
func TestZZFlushBlocks(t *testing.T) {
	writers := make(chan api.StreamWriter, 2)
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Stream: lateStream(func(w api.StreamWriter) { writers <- w })}
	}, func(o *Options) { o.WriteTimeout = 3 * time.Second })
	var ws [2]api.SharedWriter
	var cs [2]*frameConn
	for i := range ws {
		cs[i] = ts.dialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		_ = cs[i].WriteWindowUpdate(0, 1<<30)
		cs[i].request("GET", "/", false)
		ws[i] = (<-writers).(api.SharedWriter)
	}
	got := make(chan time.Time, 100000)
	go func() {
		for {
			f, err := cs[1].ReadFrame()
			if err != nil {
				return
			}
			if d, ok := f.(*http2.DataFrame); ok && len(d.Data()) > 0 {
				got <- time.Now()
			}
		}
	}()
	time.Sleep(50 * time.Millisecond)
	most := time.Duration(0)
	for i := range 2000 {
		began := time.Now()
		a := ws[0].QueueFrames([][]byte{make([]byte, 15000)})
		if !a {
			t.Logf("A takes no more at %d", i)
			break
		}
		if !ws[1].QueueFrames([][]byte{[]byte("event")}) {
			t.Fatal("B takes none")
		}
		ws[0].Flush()
		ws[1].Flush()
		at := <-got
		most = max(most, at.Sub(began))
	}
	t.Logf("an event for a client that reads was late by %v at most", most)
}

// an answer waits for the rest of the frame behind its request
func TestZZPartial(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("x") })
	conn := zzDial(ts)
	newFrameConn(t, conn)
	time.Sleep(100 * time.Millisecond)
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82, 0x87, 0x84, 0x41, 1, 'x'}, EndHeaders: true, EndStream: true})
	b.Write([]byte{0, 0, 8, 6, 0}) // a PING begins
	if _, err := conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	go func() { time.Sleep(3 * time.Second); _, _ = conn.Write(make([]byte, 12)) }()
	c := http2.NewFramer(nil, conn)
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f.Header().StreamID == 1 {
			break
		}
	}
	t.Logf("answered after %v", time.Since(began))
}

type zzPaced struct {
	net.Conn
	debt time.Duration
	rate int
}

func (c *zzPaced) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.debt += time.Duration(n) * time.Second / time.Duration(c.rate)
	if c.debt > 2*time.Millisecond {
		began := time.Now()
		time.Sleep(c.debt)
		c.debt -= time.Since(began)
	}
	return n, err
}

func TestZZPacedReads(t *testing.T) {
	for _, rate := range []int{30 << 20, 60 << 20, 120 << 20} {
		size := 6 * rate
		ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
			p := make([]byte, size)
			return &api.Response{Status: 200, BodyTo: bytes.NewReader(p), Length: int64(size), Ready: true}
		})
		c := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: ts.roots, MinVersion: tls.VersionTLS12},
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return &zzPaced{Conn: nc, rate: rate}, err
			}}}
		began := time.Now()
		resp, err := c.Get("https://" + ts.secure + "/")
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, make([]byte, 4096))
		t.Logf("%d MB/s: %d of %d MB in %v: %v", rate>>20, n>>20, size>>20, time.Since(began), err)
	}
}
