package edge

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/internal/api"
)

func zzDial(ts *testServer) *tls.Conn {
	conn, err := tls.Dial("tcp", ts.secure, &tls.Config{RootCAs: ts.roots, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// frames that straddle writes: deadline of the first is never renewed
func TestZZDeadline(t *testing.T) {
	got := make(chan string, 1)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		n, err := io.Copy(io.Discard, r.Body)
		got <- fmt.Sprint(n, " ", err)
		return text("x")
	}, func(o *Options) { o.ReadHeaderTimeout = 500 * time.Millisecond })
	conn := zzDial(ts)
	c := newFrameConn(t, conn)
	go func() { // read, answer nothing; window updates are not needed
		for {
			if _, err := c.ReadFrame(); err != nil {
				return
			}
		}
	}()
	c.request("POST", "/", true)
	time.Sleep(50 * time.Millisecond)
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	_ = fr.WriteData(1, false, make([]byte, 91))
	one := bytes.Clone(b.Bytes()) // 100 bytes
	began := time.Now()
	// always end 5 bytes into the next frame
	buf := append(bytes.Clone(one), one[:5]...)
	if _, err := conn.Write(buf); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		time.Sleep(10 * time.Millisecond)
		if _, err := conn.Write(append(bytes.Clone(one[5:]), one[:5]...)); err != nil {
			t.Logf("cut after %v: %v", time.Since(began), err)
			break
		}
		select {
		case s := <-got:
			t.Fatalf("body ended after %v: %s", time.Since(began), s)
		default:
		}
	}
}

func TestZZHeadFlood(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 401, Header: api.Header{{Name: "X-Long", Value: strings.Repeat("x", 200)}}, Body: []byte("unauthorized")}
	})
	conn := zzDial(ts)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	_ = fr.WriteSettings()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	write := func(id uint32) {
		block.Reset()
		for _, f := range [][2]string{{":method", "HEAD"}, {":scheme", "https"}, {":authority", "x"}, {":path", "/"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	}
	most := int64(0)
	id := uint32(1)
	_ = conn.SetWriteDeadline(time.Now().Add(8 * time.Second))
	end := time.Now().Add(6 * time.Second)
	for time.Now().Before(end) {
		for b.Len() < 64<<10 {
			write(id)
			id += 2
		}
		n := b.Len() - 6 // ends within a frame
		if _, err := conn.Write(b.Next(n)); err != nil {
			t.Log(err)
			break
		}
		rest := bytes.Clone(b.Bytes())
		b.Reset()
		b.Write(rest)
		most = max(most, ts.buffers.held.Load())
	}
	t.Errorf("%d requests, %d bytes held at most (queueLimit %d), short: %v", id/2, most, queueLimit, ts.buffers.short())
}

func TestZZSmallReads(t *testing.T) {
	const size = 400 << 20
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		return &api.Response{Status: 200, BodyTo: writerTo(func(w io.Writer) (int64, error) {
			p := make([]byte, 1<<20)
			for i := 0; i < size; i += len(p) {
				if _, err := w.Write(p); err != nil {
					return int64(i), err
				}
			}
			return size, nil
		}), Length: size, Ready: true}
	})
	c := ts.client(true)
	c.Timeout = 0
	began := time.Now()
	resp, err := c.Get("https://" + ts.secure + "/")
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, make([]byte, 4096))
	t.Logf("%s: %d MB of %d in %v: %v", resp.Proto, n>>20, size>>20, time.Since(began), err)
	if err != nil {
		t.Error("cut")
	}
	var _ = http.StatusOK
}

func TestZZFields(t *testing.T) {
	got := make(chan *api.Request, 1)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response { got <- r; return text("") })
	for _, header := range [][]string{
		{"x-remote-user", " admin"}, {"impersonate-user", "admin\t"}, {"authorization", " Bearer x "}, {"x", "\x80\xff"},
	} {
		c := ts.dialFrames()
		c.request("GET", "/a b#c", false, header...)
		select {
		case r := <-got:
			t.Logf("reached: %q path %q host %q", r.Header, r.RawPath, r.Host)
		case <-time.After(time.Second):
			t.Logf("refused %q", header)
		}
	}
	c := ts.dialFrames()
	c.block.Reset()
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/"}, {":authority", ""}, {":authority", "b"}} {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: true})
	select {
	case r := <-got:
		t.Logf("two authorities: %q", r.Host)
	case <-time.After(time.Second):
	}
	h1 := ts.dial()
	h1.send("GET /a b HTTP/1.1\r\nHost: x\r\nX-Remote-User:  admin \r\n\r\n")
	select {
	case r := <-got:
		t.Logf("HTTP/1.1: %q %q", r.Header, r.RawPath)
	case <-time.After(time.Second):
		t.Log("HTTP/1.1 refuses /a b")
	}
}

func TestZZCookies(t *testing.T) {
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response { return text("") })
	c := ts.dialFrames()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	const rounds = 20
	sent := 0
	for range rounds {
		c.block.Reset()
		id := c.nextID
		c.nextID += 2
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", "/"}} {
			_ = c.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		_ = c.encoder.WriteField(hpack.HeaderField{Name: "cookie", Value: strings.Repeat("&", 32<<10), Sensitive: true})
		for range 850 {
			_ = c.encoder.WriteField(hpack.HeaderField{Name: "cookie", Value: ""})
		}
		b := c.block.Bytes()
		sent += len(b)
		first := true
		for len(b) > 0 {
			n := min(len(b), 16<<10)
			if first {
				_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b[:n], EndHeaders: n == len(b), EndStream: true})
			} else {
				_ = c.WriteContinuation(id, n == len(b), b[:n])
			}
			first, b = false, b[n:]
		}
		c.until(func(fr http2.Frame) bool {
			h, ok := fr.(*http2.MetaHeadersFrame)
			if ok {
				if s := h.PseudoValue("status"); s != "200" {
					t.Log(s)
				}
			}
			return ok || fr.Header().Type == http2.FrameRSTStream
		})
	}
	runtime.ReadMemStats(&after)
	t.Logf("%d requests, %d KB sent, %d MB allocated, %v", rounds, sent>>10, (after.TotalAlloc-before.TotalAlloc)>>20, time.Since(began))
}
