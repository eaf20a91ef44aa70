package edge_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

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
		if bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
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
	ts := edgetest.Start(b, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Header: edgetest.ResponseHeader, Body: body}
	})
	bare := func(ctx *fasthttp.RequestCtx) {
		for _, f := range edgetest.ResponseHeader {
			ctx.Response.Header.Set(f.Name, f.Value)
		}
		ctx.Response.SetBodyRaw(body)
	}
	dialTLS := func(addr string) func() (net.Conn, error) {
		return func() (net.Conn, error) {
			return tls.Dial("tcp", addr, &tls.Config{RootCAs: ts.Roots, MinVersion: tls.VersionTLS12})
		}
	}
	dial := func(addr string) func() (net.Conn, error) {
		return func() (net.Conn, error) { return net.Dial("tcp", addr) }
	}
	bareTLS := &tls.Config{GetCertificate: ts.Options.GetCertificate, MinVersion: tls.VersionTLS12, DynamicRecordSizingDisabled: true, ClientAuth: tls.RequestClientCert}
	for _, bc := range []struct {
		name string
		dial func() (net.Conn, error)
	}{
		{"plain/edge", dial(ts.Sidecar)},
		{"plain/fasthttp", dial(bareFasthttp(b, nil, bare))},
		{"tls/edge", dialTLS(ts.Secure)},
		{"tls/fasthttp", dialTLS(bareFasthttp(b, bareTLS, bare))},
	} {
		b.Run(bc.name, func(b *testing.B) {
			nc, err := bc.dial()
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			size := responseSize(b, nc, edgetest.ClientRequest, len(body))
			buf := make([]byte, 64<<10)
			b.ReportAllocs()
			b.ResetTimer()
			begin := edgetest.CPU()
			for range b.N {
				exchangeRaw(b, nc, edgetest.ClientRequest, buf, size)
			}
			b.ReportMetric(float64((edgetest.CPU()-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
	b.Run("h2/edge", func(b *testing.B) {
		c := ts.Client(true)
		b.ReportAllocs()
		begin := edgetest.CPU()
		for range b.N {
			resp, err := c.Get("https://" + ts.Secure + "/api/v1/namespaces/default/pods/web-0?resourceVersion=0")
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		b.ReportMetric(float64((edgetest.CPU()-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
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
	ts := edgetest.Start(b, func(_ context.Context, r *api.Request) *api.Response {
		switch r.Path {
		case "/pieces":
			return &api.Response{Status: 200, Header: edgetest.ResponseHeader, BodyTo: list, Length: size, Ready: true}
		case "/chunked":
			return &api.Response{Status: 200, Header: edgetest.ResponseHeader, BodyTo: pieces{whole[:32<<10], int(size) / (32 << 10)}, Length: -1, Ready: true}
		}
		return &api.Response{Status: 200, Header: edgetest.ResponseHeader, Body: whole}
	})
	bareTLS := &tls.Config{GetCertificate: ts.Options.GetCertificate, MinVersion: tls.VersionTLS12, DynamicRecordSizingDisabled: true, ClientAuth: tls.RequestClientCert}
	floor := bareFasthttp(b, bareTLS, func(ctx *fasthttp.RequestCtx) { ctx.Response.SetBodyRaw(whole) })
	for _, bc := range []struct {
		name, addr, path string
		tls, h2          bool
	}{
		{"plain/pieces", ts.Sidecar, "/pieces", false, false},
		{"tls/pieces", ts.Secure, "/pieces", true, false},
		{"tls/whole", ts.Secure, "/whole", true, false},
		{"tls/chunked", ts.Secure, "/chunked", true, false},
		{"tls/fasthttp", floor, "/", true, false},
		{"h2/pieces", ts.Secure, "/pieces", true, true},
	} {
		b.Run(bc.name, func(b *testing.B) {
			c := ts.Client(bc.h2)
			c.Timeout = 0
			scheme := "http://"
			if bc.tls {
				scheme = "https://"
			}
			b.SetBytes(size)
			b.ReportAllocs()
			begin := edgetest.CPU()
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
			b.ReportMetric(float64((edgetest.CPU()-begin).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

func BenchmarkWriteFrames1000(b *testing.B) {
	frame := bytes.Repeat([]byte("x"), 6<<10)
	for _, proto := range []string{"plain", "tls", "h2"} {
		b.Run(proto, func(b *testing.B) {
			const watchers = 1000
			writers := make(chan api.StreamWriter, watchers)
			ts := edgetest.Start(b, func(context.Context, *api.Request) *api.Response {
				return &api.Response{Status: 200, Header: edgetest.ResponseHeader, Stream: &edgetest.StreamFunc{OnStart: func(w api.StreamWriter) { writers <- w }}}
			})
			var readers sync.WaitGroup
			stop := benchWatchers(b, ts, proto, watchers, &readers)
			all := make([]api.StreamWriter, 0, watchers)
			for range watchers {
				all = append(all, edgetest.Receive(b, writers, "watch"))
			}
			b.ReportAllocs()
			b.ResetTimer()
			begin := edgetest.CPU()
			for i := range b.N {
				if err := all[i%watchers].WriteFrames([][]byte{frame}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((edgetest.CPU()-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
			b.StopTimer()
			stop()
			readers.Wait()
		})
	}
}

// benchWatchers opens watches whose clients read as fast as they can.
func benchWatchers(b *testing.B, ts *edgetest.Server, proto string, n int, wg *sync.WaitGroup) (stop func()) {
	if proto == "h2" {
		c := ts.Client(true)
		c.Timeout = 0
		ctx, cancel := context.WithCancel(context.Background())
		for range n {
			req, _ := http.NewRequestWithContext(ctx, "GET", "https://"+ts.Secure+"/watch", nil)
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
	conns := make([]*edgetest.RawConn, n)
	for i := range conns {
		if proto == "tls" {
			conns[i] = ts.DialTLS()
		} else {
			conns[i] = ts.Dial()
		}
		_ = conns[i].SetDeadline(time.Time{})
		conns[i].Send("%s", edgetest.ClientRequest)
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
	ts := edgetest.Start(b, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Header: edgetest.ResponseHeader, Body: body}
	})
	c := ts.DialFrames()
	_ = c.WriteWindowUpdate(0, 1<<30)
	b.ReportAllocs()
	begin := edgetest.CPU()
	for range b.N {
		id := c.Request("GET", "/api/v1/namespaces/default/pods/web-0?resourceVersion=0", false, "authorization", "Bearer "+edgetest.ClientRequest[300:900])
		c.Until(edgetest.IsEnd(id))
		_ = c.WriteWindowUpdate(0, 6<<10)
	}
	b.ReportMetric(float64((edgetest.CPU()-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
}
