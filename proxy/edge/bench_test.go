package edge

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
)

// benchRequest is a get by client-go with a service account's token.
var benchRequest = fmt.Sprintf("GET /api/v1/namespaces/default/pods/web-0?resourceVersion=0 HTTP/1.1\r\nHost: 127.0.0.1:6443\r\n"+
	"User-Agent: kubectl/v1.36.3 (linux/amd64) kubernetes/abc\r\nAccept: application/json\r\nAuthorization: Bearer %s\r\nAccept-Encoding: gzip\r\n\r\n",
	bytes.Repeat([]byte("t"), 900))

var benchHeader = api.Header{
	{Name: "Audit-Id", Value: "6f1fd37e-8d4a-4c8f-9e1f-4e7a3d1c2b3a"},
	{Name: "Cache-Control", Value: "no-cache, private"},
	{Name: "Content-Type", Value: "application/json"},
	{Name: "X-Kubernetes-Pf-Flowschema-Uid", Value: "6f1fd37e-8d4a-4c8f-9e1f-4e7a3d1c2b3a"},
	{Name: "X-Kubernetes-Pf-Prioritylevel-Uid", Value: "6f1fd37e-8d4a-4c8f-9e1f-4e7a3d1c2b3a"},
}

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// exchangeRaw sends a request and reads until the response's size is complete.
func exchangeRaw(b *testing.B, nc net.Conn, request string, buf []byte, size int) {
	if _, err := io.WriteString(nc, request); err != nil {
		b.Fatal(err)
	}
	for n := 0; n < size; {
		m, err := nc.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		n += m
	}
}

// responseSize learns how long a response is, head included.
func responseSize(b *testing.B, nc net.Conn, request string, body int) int {
	if _, err := io.WriteString(nc, request); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	n := 0
	for {
		m, err := nc.Read(buf[n:min(len(buf), n+1)])
		if err != nil {
			b.Fatal(err)
		}
		n += m
		if bytes.HasSuffix(buf[:n], crlfcrlf) {
			break
		}
	}
	for left := body; left > 0; {
		m, err := nc.Read(buf[:min(len(buf), left)])
		if err != nil {
			b.Fatal(err)
		}
		left -= m
	}
	return n + body
}

// bareFasthttp is the floor: fasthttp's own server with the same response.
func bareFasthttp(b *testing.B, cert *tls.Config, h fasthttp.RequestHandler) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := ln.Addr().String()
	if cert != nil {
		ln = tls.NewListener(ln, cert)
	}
	s := &fasthttp.Server{Handler: h, NoDefaultServerHeader: true, ReadBufferSize: 64 << 10, WriteBufferSize: 16 << 10,
		ReadTimeout: defaults.ReadHeaderTimeout, IdleTimeout: defaults.IdleTimeout, WriteTimeout: defaults.WriteTimeout}
	go func() { _ = s.Serve(ln) }()
	b.Cleanup(func() { _ = s.Shutdown() })
	return addr
}

func BenchmarkGet6KB(b *testing.B) {
	body := bytes.Repeat([]byte("x"), 6<<10)
	ts := startServer(b, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Header: benchHeader, Body: body}
	})
	bare := func(ctx *fasthttp.RequestCtx) {
		for _, f := range benchHeader {
			ctx.Response.Header.Set(f.Name, f.Value)
		}
		ctx.Response.SetBodyRaw(body)
	}
	dialTLS := func(addr string) func() (net.Conn, error) {
		return func() (net.Conn, error) {
			return tls.Dial("tcp", addr, &tls.Config{RootCAs: ts.roots, MinVersion: tls.VersionTLS12})
		}
	}
	dial := func(addr string) func() (net.Conn, error) {
		return func() (net.Conn, error) { return net.Dial("tcp", addr) }
	}
	bareTLS := ts.tls.Clone()
	bareTLS.NextProtos = nil
	for _, bc := range []struct {
		name string
		dial func() (net.Conn, error)
	}{
		{"plain/edge", dial(ts.sidecar)},
		{"plain/fasthttp", dial(bareFasthttp(b, nil, bare))},
		{"tls/edge", dialTLS(ts.secure)},
		{"tls/fasthttp", dialTLS(bareFasthttp(b, bareTLS, bare))},
	} {
		b.Run(bc.name, func(b *testing.B) {
			nc, err := bc.dial()
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			size := responseSize(b, nc, benchRequest, len(body))
			buf := make([]byte, 64<<10)
			b.ReportAllocs()
			b.ResetTimer()
			begin := cpu()
			for range b.N {
				exchangeRaw(b, nc, benchRequest, buf, size)
			}
			b.ReportMetric(float64((cpu()-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
	b.Run("h2/edge", func(b *testing.B) {
		c := ts.client(true)
		b.ReportAllocs()
		begin := cpu()
		for range b.N {
			resp, err := c.Get("https://" + ts.secure + "/api/v1/namespaces/default/pods/web-0?resourceVersion=0")
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		b.ReportMetric(float64((cpu()-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
	})
}

// pieces is a list of objects as a cache writes one.
type pieces struct {
	object []byte
	n      int
}

func (p pieces) WriteTo(w io.Writer) (int64, error) {
	var n int64
	for range p.n {
		m, err := w.Write(p.object)
		n += int64(m)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func BenchmarkBodyTo30MB(b *testing.B) {
	object := bytes.Repeat([]byte("x"), 6<<10)
	list := pieces{object, 5000}
	size := int64(len(object) * list.n)
	whole := bytes.Repeat([]byte("x"), int(size))
	ts := startServer(b, func(_ context.Context, r *api.Request) *api.Response {
		switch r.Path {
		case "/pieces":
			return &api.Response{Status: 200, Header: benchHeader, BodyTo: list, Length: size, Ready: true}
		case "/chunked":
			return &api.Response{Status: 200, Header: benchHeader, BodyTo: pieces{whole[:32<<10], int(size) / (32 << 10)}, Length: -1, Ready: true}
		}
		return &api.Response{Status: 200, Header: benchHeader, Body: whole}
	})
	bareTLS := ts.tls.Clone()
	bareTLS.NextProtos = nil
	floor := bareFasthttp(b, bareTLS, func(ctx *fasthttp.RequestCtx) { ctx.Response.SetBodyRaw(whole) })
	for _, bc := range []struct {
		name, addr, path string
		tls, h2          bool
	}{
		{"plain/pieces", ts.sidecar, "/pieces", false, false},
		{"tls/pieces", ts.secure, "/pieces", true, false},
		{"tls/whole", ts.secure, "/whole", true, false},
		{"tls/chunked", ts.secure, "/chunked", true, false},
		{"tls/fasthttp", floor, "/", true, false},
		{"h2/pieces", ts.secure, "/pieces", true, true},
	} {
		b.Run(bc.name, func(b *testing.B) {
			c := ts.client(bc.h2)
			c.Timeout = 0
			scheme := "http://"
			if bc.tls {
				scheme = "https://"
			}
			b.SetBytes(size)
			b.ReportAllocs()
			begin := cpu()
			for range b.N {
				resp, err := c.Get(scheme + bc.addr + bc.path)
				if err != nil {
					b.Fatal(err)
				}
				n, err := io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if err != nil || n < size-(32<<10) {
					b.Fatal(n, err)
				}
			}
			b.ReportMetric(float64((cpu()-begin).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// streamFunc is a stream that begins with a function.
type streamFunc struct {
	start func(w api.StreamWriter)
	stop  func()
}

func (s *streamFunc) Start(w api.StreamWriter) { s.start(w) }

func (s *streamFunc) Stop() {
	if s.stop != nil {
		s.stop()
	}
}

func BenchmarkWriteFrames1000(b *testing.B) {
	frame := bytes.Repeat([]byte("x"), 6<<10)
	for _, proto := range []string{"plain", "tls", "h2"} {
		b.Run(proto, func(b *testing.B) {
			const watchers = 1000
			writers := make(chan api.StreamWriter, watchers)
			ts := startServer(b, func(context.Context, *api.Request) *api.Response {
				return &api.Response{Status: 200, Header: benchHeader, Stream: &streamFunc{start: func(w api.StreamWriter) { writers <- w }}}
			})
			var readers sync.WaitGroup
			stop := benchWatchers(b, ts, proto, watchers, &readers)
			all := make([]api.StreamWriter, 0, watchers)
			for range watchers {
				all = append(all, receive(b, writers, "watch"))
			}
			b.ReportAllocs()
			b.ResetTimer()
			begin := cpu()
			for i := range b.N {
				if err := all[i%watchers].WriteFrames([][]byte{frame}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpu()-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
			b.StopTimer()
			stop()
			readers.Wait()
		})
	}
}

// benchWatchers opens watches whose clients read as fast as they can.
func benchWatchers(b *testing.B, ts *testServer, proto string, n int, wg *sync.WaitGroup) (stop func()) {
	if proto == "h2" {
		c := ts.client(true)
		c.Timeout = 0
		ctx, cancel := context.WithCancel(context.Background())
		for range n {
			req, _ := http.NewRequestWithContext(ctx, "GET", "https://"+ts.secure+"/watch", nil)
			resp, err := c.Do(req)
			if err != nil {
				b.Fatal(err)
			}
			wg.Go(func() {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			})
		}
		return cancel
	}
	conns := make([]*rawConn, n)
	for i := range conns {
		if proto == "tls" {
			conns[i] = ts.dialTLS()
		} else {
			conns[i] = ts.dial()
		}
		_ = conns[i].SetDeadline(time.Time{})
		conns[i].send("%s", benchRequest)
		nc := conns[i].Conn
		wg.Go(func() {
			buf := make([]byte, 8<<10)
			for {
				if _, err := nc.Read(buf); err != nil {
					return
				}
			}
		})
	}
	return func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
}

// BenchmarkHTTP2Server is what the server alone takes: its client is another process's
// part, made of frames that are written before.
func BenchmarkHTTP2Server(b *testing.B) {
	body := bytes.Repeat([]byte("x"), 6<<10)
	ts := startServer(b, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Header: benchHeader, Body: body}
	})
	c := ts.dialFrames()
	_ = c.WriteWindowUpdate(0, 1<<30)
	b.ReportAllocs()
	begin := cpu()
	for range b.N {
		id := c.request("GET", "/api/v1/namespaces/default/pods/web-0?resourceVersion=0", false, "authorization", "Bearer "+benchRequest[300:900])
		c.until(isEnd(id))
		_ = c.WriteWindowUpdate(0, 6<<10)
	}
	b.ReportMetric(float64((cpu()-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
}
