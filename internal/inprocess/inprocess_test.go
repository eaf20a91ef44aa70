package inprocess

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/websocket"
)

// large is more than all buffers between client and handler hold.
const large = 512 << 10

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a transport to the handler and, for comparison, a client of a real HTTP/1.1 server
// with the same handler.
func serve(t testing.TB, handler http.HandlerFunc) (*Transport, *httptest.Server) {
	t.Helper()
	transport := New(handler, nil)
	t.Cleanup(transport.Close)
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = nil
	server.Start()
	t.Cleanup(server.Close)
	return transport, server
}

func request(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// seen is what a client sees of a response.
type seen struct {
	Status      int
	ContentType string
	Length      int64
	Body        string
	Err         bool
}

func see(t testing.TB, rt http.RoundTripper, req *http.Request) seen {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return seen{Err: true}
	}
	body, err := io.ReadAll(resp.Body)
	if closeErr := resp.Body.Close(); closeErr != nil {
		t.Error(closeErr)
	}
	return seen{resp.StatusCode, resp.Header.Get("Content-Type"), resp.ContentLength, string(body), err != nil}
}

func TestRequest(t *testing.T) {
	got := make(chan *http.Request, 1)
	transport, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		r.Header.Set("Mine", "now") // handlers may do this
		got <- r
	})
	req := request(t, "GET", "https://elsewhere/p", nil)
	req.URL.Opaque, req.Host, req.RemoteAddr = "//elsewhere//odd/%2e%2e/path", "the.host", "192.0.2.1:7"
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	r := <-got
	if r.URL.Path != "//odd/../path" || r.Host != "the.host" || r.RemoteAddr != "192.0.2.1:7" || req.Header.Get("Mine") != "" {
		t.Errorf("%+v", r)
	}
}

// TestStream: flushed data arrives while the handler continues; a client that disconnects ends the
// handler's context and its writes.
func TestStream(t *testing.T) {
	next, ended := make(chan string), make(chan error, 1)
	transport, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		for s := range next {
			_, _ = io.WriteString(w, s)
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
		_, _ = io.WriteString(w, "for nobody")
		ended <- http.NewResponseController(w).Flush()
	})
	resp, err := transport.RoundTrip(request(t, "GET", "http://x/", nil))
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	for _, s := range []string{"one", "two"} {
		next <- s
		if n, err := resp.Body.Read(buf); string(buf[:n]) != s || err != nil {
			t.Fatalf("%q, %v", buf[:n], err)
		}
	}
	close(next)
	_ = resp.Body.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("write: %v", err)
	}
	if _, err := resp.Body.Read(buf); err == nil {
		t.Error("read after close")
	}
}

// TestContext: the end of the request's context ends everything.
func TestContext(t *testing.T) {
	for name, flush := range map[string]bool{"before the head": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			began := make(chan struct{})
			transport, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if flush {
					w.(http.Flusher).Flush()
				}
				close(began)
				//lint:ignore SA1019 k8s.io/apiserver asks for it.
				<-w.(http.CloseNotifier).CloseNotify()
				<-r.Context().Done()
				// The client reads this slowly, and the call must not block.
				for err := error(nil); err == nil; {
					_, err = w.Write(make([]byte, large))
				}
			})
			req := request(t, "GET", "http://x/", nil)
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(req.Context())
			defer cancel(nil)
			if !flush {
				go func() {
					<-began
					cancel(cause)
				}()
			}
			resp, err := transport.RoundTrip(req.WithContext(ctx))
			if flush {
				if err != nil {
					t.Fatal(err)
				}
				cancel(cause)
				_, err = io.Copy(io.Discard, resp.Body) // earlier data may arrive first
			}
			if !errors.Is(err, cause) {
				t.Errorf("err = %v", err)
			}
		})
	}
}

// TestSlowClient: a handler waits for its client, within the limit.
func TestSlowClient(t *testing.T) {
	wrote := make(chan int)
	transport, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 64 {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				return
			}
			select {
			case wrote <- i:
			default:
			}
		}
	})
	resp, err := transport.RoundTrip(request(t, "GET", "http://x/", nil))
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if n != 2<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	_ = resp.Body.Close()
}

// TestAbortedRequestIsNotRepeated: net/http would repeat a GET over each idle connection.
func TestAbortedRequestIsNotRepeated(t *testing.T) {
	var calls atomic.Int32
	transport, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			calls.Add(1)
			panic(http.ErrAbortHandler)
		}
	})
	for range 2 { // the second one has a connection to reuse
		if got := see(t, transport, request(t, "GET", "http://x/", nil)); got.Status != 200 {
			t.Fatalf("%+v", got)
		}
		if got := see(t, transport, request(t, "GET", "http://x/abort", nil)); !got.Err {
			t.Errorf("%+v", got)
		}
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("the handler was called %d times", n)
	}
}

func TestBodyEnds(t *testing.T) {
	transport, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		_, after := r.Body.Read(make([]byte, 1))
		if err != nil || !errors.Is(after, io.EOF) {
			http.Error(w, err.Error(), 400)
		}
	})
	closed := make(chan struct{})
	body := &closer{Reader: strings.NewReader("abc"), closed: closed}
	req := request(t, "POST", "http://x/", body)
	req.ContentLength = 3
	if got := see(t, transport, req); got.Status != 200 {
		t.Errorf("%+v", got)
	}
	<-closed
}

type closer struct {
	io.Reader
	once   sync.Once
	closed chan struct{}
}

func (c *closer) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// TestUpgrade uses a handler that writes the header with WriteHeader, like SPDY's.
func TestUpgrade(t *testing.T) {
	transport, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
			panic(err)
		}
		_, _ = io.Copy(conn, rw.Reader)
		_, _ = io.WriteString(conn, "bye")
	})
	req := request(t, "POST", "http://x/exec", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "SPDY/3.1")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "SPDY/3.1" {
		t.Fatalf("%+v", resp)
	}
	conn := resp.Body.(interface {
		io.ReadWriteCloser
		CloseWrite() error
	})
	_, _ = io.WriteString(conn, "ping")
	buf := make([]byte, 4)
	if _, err := io.ReadFull(conn, buf); string(buf) != "ping" || err != nil {
		t.Errorf("%q, %v", buf, err)
	}
	_ = conn.CloseWrite()
	if rest, err := io.ReadAll(conn); string(rest) != "bye" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	_ = conn.Close()
	if _, err := conn.Write([]byte("x")); err == nil {
		t.Error("write after close")
	}
}

// TestWebSocket uses a handler that writes the header to the connection itself.
func TestWebSocket(t *testing.T) {
	transport, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		websocket.Server{Handler: func(ws *websocket.Conn) { _, _ = io.Copy(ws, ws) }}.ServeHTTP(w, r)
	})
	req := request(t, "GET", "http://x/", nil)
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", "Sec-Websocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": "http://x",
	} {
		req.Header.Set(name, value)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 101 || resp.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("%+v", resp)
	}
	conn := resp.Body.(io.ReadWriteCloser)
	defer conn.Close()
	_, _ = conn.Write([]byte{0x81, 0x82, 0, 0, 0, 0, 'h', 'i'}) // masked with zeros
	frame := make([]byte, 4)
	if _, err := io.ReadFull(conn, frame); !bytes.Equal(frame, []byte{0x81, 2, 'h', 'i'}) || err != nil {
		t.Errorf("%x, %v", frame, err)
	}
}

// TestHijackedRejection uses a handler that hijacks the connection to reject the request.
func TestHijackedRejection(t *testing.T) {
	transport, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(rw, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
		_ = rw.Flush()
	})
	if got := see(t, transport, request(t, "GET", "http://x/", nil)); got.Status != 403 || got.Body != "no" {
		t.Errorf("%+v", got)
	}
}

// TestAbandonedUpgrade: the connection ends with the request's context.
func TestAbandonedUpgrade(t *testing.T) {
	began := make(chan struct{})
	transport, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		close(began)
		_, _ = bufio.NewReader(conn).ReadByte()
	})
	req := request(t, "GET", "http://x/", nil)
	ctx, cancel := context.WithCancel(req.Context())
	go func() {
		<-began
		cancel()
	}()
	if _, err := transport.RoundTrip(req.WithContext(ctx)); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
}

// TestCanceledUpgrade: the connection of an accepted upgrade ends with the request's context.
func TestCanceledUpgrade(t *testing.T) {
	transport, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_ = rw.Flush()
		_, _ = rw.ReadByte()
	})
	req := request(t, "GET", "http://x/", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "x")
	ctx, cancel := context.WithCancel(req.Context())
	resp, err := transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if n, err := resp.Body.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes of a canceled connection", n)
	}
	_ = resp.Body.Close()
}

func TestClose(t *testing.T) {
	transport, _ := serve(t, func(http.ResponseWriter, *http.Request) {})
	transport.Close()
	if _, err := transport.RoundTrip(request(t, "GET", "http://x/", nil)); !errors.Is(err, ErrClosed) {
		t.Errorf("err = %v", err)
	}
}

func TestWriteDeadline(t *testing.T) {
	result := make(chan error, 1)
	transport, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Millisecond))
		_, err := w.Write(make([]byte, large))
		result <- err
	})
	resp, err := transport.RoundTrip(request(t, "GET", "http://x/", nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
	_ = resp.Body.Close()
}

// BenchmarkRoundTrip compares with connections on the loopback interface.
func BenchmarkRoundTrip(b *testing.B) {
	object := bytes.Repeat([]byte("x"), 6<<10)
	transport, server := serve(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(object)
	})
	for name, rt := range map[string]http.RoundTripper{"inprocess": transport, "http1": server.Client().Transport} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req, err := http.NewRequest("POST", server.URL+"/api/v1/namespaces/n/pods", bytes.NewReader(object))
				if err != nil {
					b.Fatal(err)
				}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
}
