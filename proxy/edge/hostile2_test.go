package edge

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"math/rand"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/internal/api"
)

func TestZZHeadFlood2(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 401, Header: api.Header{{Name: "X-Long", Value: strings.Repeat("x", 200)}}, Body: []byte("unauthorized")}
	})
	conn := zzDial(ts)
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	b.WriteString(http2.ClientPreface)
	_ = fr.WriteSettings()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	write := func(id uint32) {
		block.Reset()
		for _, f := range [][2]string{{":method", "HEAD"}, {":scheme", "https"}, {":authority", "x"}, {":path", "/"}, {"a", "b"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	}
	write(1)
	_, _ = conn.Write(b.Bytes())
	b.Reset()
	time.Sleep(200 * time.Millisecond)
	id := uint32(3)
	write(id)
	if b.Len() != 14 {
		t.Fatal(b.Len())
	}
	_, _ = conn.Write(b.Next(1))
	most := int64(0)
	end := time.Now().Add(4 * time.Second)
	_ = conn.SetWriteDeadline(end)
	for time.Now().Before(end) {
		for b.Len() < 64<<10 {
			id += 2
			write(id)
		}
		if _, err := conn.Write(b.Next(16 << 10)); err != nil {
			t.Log(err)
			break
		}
		rest := bytes.Clone(b.Bytes())
		b.Reset()
		b.Write(rest)
		most = max(most, ts.buffers.held.Load())
	}
	t.Errorf("%d requests, %d MB held at most (queueLimit %d), short: %v", id/2, most>>20, queueLimit, ts.buffers.short())
}

func TestZZGzip(t *testing.T) {
	const size = 48 << 20
	var z bytes.Buffer
	gz, _ := gzip.NewWriterLevel(&z, 1)
	p := make([]byte, 1<<20)
	r := rand.New(rand.NewSource(1))
	for range size >> 20 {
		for i := range p {
			p[i] = byte(r.Intn(64))
		}
		_, _ = gz.Write(p)
	}
	_ = gz.Close()
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		return &api.Response{Status: 200, Header: api.Header{{Name: "Content-Encoding", Value: "gzip"}}, BodyTo: bytes.NewReader(z.Bytes()), Length: int64(z.Len()), Ready: true}
	})
	c := ts.client(true)
	c.Timeout = 0
	total := 0
	for range 6 {
		began := time.Now()
		resp, err := c.Get("https://" + ts.secure + "/")
		if err != nil {
			t.Fatal(err)
		}
		zr, err := gzip.NewReader(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(zr)
		_ = resp.Body.Close()
		total += z.Len()
		t.Logf("%d MB (gzip %d MB, %d of all) in %v: %v, uncompressed %v", len(b)>>20, z.Len()>>20, total>>20, time.Since(began), err, resp.Uncompressed)
	}
}

// rapid reset where handlers end at once
func TestZZRapid(t *testing.T) {
	var calls atomic.Int64
	ts := startServer(t, func(ctx context.Context, r *api.Request) *api.Response {
		calls.Add(1)
		<-ctx.Done()
		return text("late")
	})
	c := ts.dialFrames()
	c.tolerant()
	ended := make(chan http2.ErrCode, 1)
	go func() { code, _ := c.goAwayOf(); ended <- code }()
	began := time.Now()
	i := 0
	for time.Since(began) < 4*time.Second {
		id := c.request("GET", "/", false)
		if c.failed() != nil {
			break
		}
		_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
		i++
	}
	t.Logf("%d resets in %v, %d handlers", i, time.Since(began), calls.Load())
}

// a handler's panic, a client gone, a reset while a handler waits for body and window
func TestZZLeaks(t *testing.T) {
	ts := startServer(t, func(ctx context.Context, r *api.Request) *api.Response {
		switch r.Path {
		case "/body":
			_, _ = io.Copy(io.Discard, r.Body)
		case "/panic":
			panic("x")
		case "/big":
			return &api.Response{Status: 200, BodyTo: bytes.NewReader(make([]byte, 4<<20)), Length: 4 << 20, Ready: true}
		case "/panicbody":
			return &api.Response{Status: 200, BodyTo: writerTo(func(w io.Writer) (int64, error) { _, _ = w.Write(make([]byte, 50000)); panic("y") }), Length: 1 << 20}
		}
		return text("x")
	})
	before := runtime.NumGoroutine()
	for n := range 20 {
		conn := zzDial(ts)
		c := newFrameConn(t, conn)
		for _, path := range []string{"/body", "/panic", "/big", "/panicbody", "/x"} {
			for k := range 4 {
				id := c.request("POST", path, k%2 == 0)
				if k < 2 {
					_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
				}
			}
		}
		time.Sleep(5 * time.Millisecond)
		if n%2 == 0 {
			_ = c.WriteWindowUpdate(0, 1<<31-1)
		}
		_ = conn.Close()
	}
	end := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before || ts.buffers.held.Load() != 0 || ts.gauge("kubeweir_connections", "secure", "h2") != 0 {
		if time.Now().After(end) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before, held %d, conns %v\n%s", runtime.NumGoroutine(), before, ts.buffers.held.Load(), ts.gauge("kubeweir_connections", "secure", "h2"), buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func zzGzip(size int) []byte {
	var z bytes.Buffer
	gz, _ := gzip.NewWriterLevel(&z, 1)
	p := make([]byte, 1<<20)
	r := rand.New(rand.NewSource(1))
	for i := range p {
		p[i] = byte(r.Intn(64))
	}
	for range size >> 20 {
		_, _ = gz.Write(p)
	}
	_ = gz.Close()
	return z.Bytes()
}
