package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// TestSendsBounded: a request that the server breaks off, as Go's does by PROTOCOL_ERROR with a
// path that it cannot read, is not sent again and again.
func TestSendsBounded(t *testing.T) {
	for _, many := range []bool{false, true} {
		var dials atomic.Int64
		s := newServer(t, func(http.ResponseWriter, *http.Request) {})
		c := s.client(t, func(o *Options) {
			if many {
				o.Servers, o.Limits = []string{s.URL}, Limits{ServerCheck: time.Hour}
			}
			o.Config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, network, address)
			}
		})
		for _, method := range []string{"POST", "GET"} {
			r := request(method, "/api/v1/watch/pods?watch=1")
			r.RawPath = "/%zz"
			before := dials.Load()
			resp := c.Forward(testContext(t), r, Credentials{As: AsGateway})
			if finish(t, resp); resp.Status != http.StatusServiceUnavailable {
				t.Errorf("%s, several servers %v: %d", method, many, resp.Status)
			}
			// Reads are tried once more by the gateway itself.
			if n := dials.Load() - before; n > 2*pool.MaxSends+2 || method == "POST" && n > 2 {
				t.Errorf("%s, several servers %v: it was sent %d times", method, many, n)
			}
		}
	}
}

// rawServer speaks HTTP/2 frame by frame. It responds 200 to clients that use HTTP/1.1, such as
// health checks.
type rawServer struct {
	net.Listener
	// handle answers the nth request that came as a whole; false ends the connection.
	handle func(f *http2.Framer, stream uint32, n int64) bool
	came   atomic.Int64
	// hangsUp: who connects is cut off before the handshake, as while a server closes its port.
	hangsUp atomic.Bool
	conns   sync.WaitGroup
}

// newRawServer starts one with the certificate of s.
func newRawServer(t *testing.T, s *server, handle func(f *http2.Framer, stream uint32, n int64) bool) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rawServer{Listener: l, handle: handle}
	t.Cleanup(func() { // after the client's end
		_ = l.Close()
		r.conns.Wait()
	})
	r.conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.conns.Go(func() { r.serve(tls.Server(conn, s.TLS)) })
		}
	})
	return r
}

func (r *rawServer) url() string { return "https://" + r.Addr().String() }

func (r *rawServer) serve(conn *tls.Conn) {
	defer func() { _ = conn.Close() }()
	if r.hangsUp.Load() || conn.Handshake() != nil {
		return
	}
	if conn.ConnectionState().NegotiatedProtocol != http2.NextProtoTLS {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(conn, conn)
	if f.WriteSettings() != nil {
		return
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		ended := false
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = f.WritePing(true, frame.Data)
			}
		case *http2.HeadersFrame:
			ended = frame.StreamEnded()
		case *http2.DataFrame:
			ended = frame.StreamEnded()
		}
		if ended && !r.handle(f, frame.Header().StreamID, r.came.Add(1)) {
			return
		}
	}
}

// created answers 201 without a body.
func created(f *http2.Framer, stream uint32) {
	var head bytes.Buffer
	_ = hpack.NewEncoder(&head).WriteField(hpack.HeaderField{Name: ":status", Value: "201"})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true})
}

// TestWritesOnce: whatever a server does after it has done what a write asks for, that is not
// sent again, by us or net/http, to it or to another; what it says that it did not process is.
func TestWritesOnce(t *testing.T) {
	type ending struct {
		name   string
		handle func(r *rawServer) func(f *http2.Framer, stream uint32, n int64) bool
		// sends is how often the write may come to one server; answered: one took it.
		sends     int64
		rejected  bool // it surely was not processed
		responded bool
	}
	var all []ending
	for code := http2.ErrCodeNo; code <= http2.ErrCodeHTTP11Required; code++ {
		e := ending{name: "RST_STREAM " + code.String(), sends: 1}
		if code == http2.ErrCodeRefusedStream {
			e.sends, e.rejected = pool.MaxSends, true
		}
		e.handle = func(*rawServer) func(*http2.Framer, uint32, int64) bool {
			return func(f *http2.Framer, stream uint32, _ int64) bool { return f.WriteRSTStream(stream, code) == nil }
		}
		all = append(all, e)
	}
	all = append(all,
		ending{name: "PROTOCOL_ERROR, and nobody there any more", sends: 1, handle: func(r *rawServer) func(*http2.Framer, uint32, int64) bool {
			return func(f *http2.Framer, stream uint32, _ int64) bool {
				_ = r.Close()
				return f.WriteRSTStream(stream, http2.ErrCodeProtocol) == nil
			}
		}},
		ending{name: "GOAWAY before each request", sends: pool.MaxSends, rejected: true, handle: func(*rawServer) func(*http2.Framer, uint32, int64) bool {
			return func(f *http2.Framer, _ uint32, _ int64) bool { return f.WriteGoAway(0, http2.ErrCodeNo, nil) == nil }
		}},
		ending{name: "GOAWAY before the request, and nobody there any more", sends: 1, rejected: true, handle: func(r *rawServer) func(*http2.Framer, uint32, int64) bool {
			return func(f *http2.Framer, _ uint32, _ int64) bool {
				_ = r.Close()
				return f.WriteGoAway(0, http2.ErrCodeNo, nil) == nil
			}
		}},
		ending{name: "GOAWAY before the request, and no handshake any more", sends: 1, rejected: true, handle: func(r *rawServer) func(*http2.Framer, uint32, int64) bool {
			return func(f *http2.Framer, _ uint32, _ int64) bool {
				r.hangsUp.Store(true)
				return f.WriteGoAway(0, http2.ErrCodeNo, nil) == nil
			}
		}},
		ending{name: "the connection is closed", sends: 1, handle: func(*rawServer) func(*http2.Framer, uint32, int64) bool {
			return func(*http2.Framer, uint32, int64) bool { return false }
		}},
		ending{name: "GOAWAY after the request, and closed", sends: 1, handle: func(*rawServer) func(*http2.Framer, uint32, int64) bool {
			return func(f *http2.Framer, stream uint32, _ int64) bool {
				_ = f.WriteGoAway(stream, http2.ErrCodeNo, nil)
				return false
			}
		}},
		ending{name: "GOAWAY before the request", sends: 2, responded: true, handle: func(*rawServer) func(*http2.Framer, uint32, int64) bool {
			return func(f *http2.Framer, stream uint32, n int64) bool {
				if n == 1 {
					return f.WriteGoAway(0, http2.ErrCodeNo, nil) == nil
				}
				created(f, stream)
				return true
			}
		}},
	)
	for _, e := range all {
		for _, many := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/several servers %v", e.name, many), func(t *testing.T) {
				t.Parallel() // some are sent again after a pause
				for _, w := range []*api.Request{
					withBody(request("POST", "/api/v1/namespaces/x/pods/y/eviction"), "small"),
					withBody(request("PATCH", "/api/v1/namespaces/x/pods/y"), strings.Repeat("x", 2*smallUpload)),
					request("DELETE", "/api/v1/namespaces/x/pods/y", "Idempotency-Key", "1"),
				} {
					if w.Method == "PATCH" && (e.rejected || e.responded) {
						// A body that was read is not there any more, but it is known what became of it.
						writeOnce(t, w, many, e.handle, 1, true, false)
						continue
					}
					writeOnce(t, w, many, e.handle, e.sends, e.rejected, e.responded)
				}
			})
		}
	}
}

func writeOnce(t *testing.T, w *api.Request, many bool, handle func(*rawServer) func(*http2.Framer, uint32, int64) bool, sends int64, rejected, responded bool) {
	t.Helper()
	other := newOneOf(t, "other")
	raw := newRawServer(t, other.server, nil)
	raw.handle = handle(raw)
	c := other.client(t, func(o *Options) {
		o.Config.Host = raw.url()
		if many { // the second server is asked first
			o.Servers, o.Limits = []string{other.URL, raw.url()}, Limits{ServerCheck: time.Hour}
		}
	})
	c.direct.Store(pool.MaxHTTP1) // what is more goes over HTTP/2
	resp := c.Forward(testContext(t), w, Credentials{As: AsGateway})
	body, large := finish(t, resp), w.ContentLength > smallUpload
	doubt := strings.Contains(body, "it is not known whether the request was applied")
	switch {
	case responded && resp.Status != 201:
		t.Errorf("%s: %d %s", w.Method, resp.Status, body)
	case rejected && many && !large && resp.Status != 200:
		t.Errorf("%s: not sent to the other server: %d %s", w.Method, resp.Status, body)
	case rejected && (!many || large) && (resp.Status != 503 || doubt || resp.Header.Get("Retry-After") == ""):
		t.Errorf("%s: %d %v %s", w.Method, resp.Status, resp.Header, body)
	case !responded && !rejected && (resp.Status != 503 || !doubt):
		t.Errorf("%s: %d %s", w.Method, resp.Status, body)
	}
	if n := raw.came.Load(); n < 1 || n > sends {
		t.Errorf("%s came %d times", w.Method, n)
	}
	if want := map[bool]int64{true: 1}[rejected && many && !large]; other.writes.Load() != want {
		t.Errorf("%s: the other server took %d", w.Method, other.writes.Load())
	}
}

// TestWritesOnceHTTP1: the same over HTTP/1.1, on connections used before.
func TestWritesOnceHTTP1(t *testing.T) {
	for _, dial := range []func(context.Context, string, string) (net.Conn, error){nil, new(net.Dialer).DialContext} { // our own connections, net/http's
		var writes, upgrades atomic.Int64
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/refused":
				w.WriteHeader(http.StatusForbidden)
				return
			case r.Header.Get("Upgrade") != "":
				upgrades.Add(1)
			case !pool.Safe(r.Method):
				writes.Add(1)
			default:
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler)
		}, http1Only)
		c := s.client(t, func(o *Options) { o.Config.Dial = dial })
		send := func(r *api.Request) (int, string) {
			resp := c.Forward(testContext(t), r, Credentials{As: AsGateway})
			return resp.Status, finish(t, resp)
		}
		for _, w := range []*api.Request{
			withBody(request("POST", "/api/v1/pods", "Idempotency-Key", "1"), "small"),
			withBody(request("PUT", "/api/v1/pods", "X-Idempotency-Key", "1"), strings.Repeat("x", 2*smallUpload)),
			request("DELETE", "/api/v1/pods", "Idempotency-Key", "1"),
		} {
			if status, _ := send(request("GET", "/api/v1/pods")); status != 200 {
				t.Fatalf("a read: %d", status)
			}
			before := writes.Load()
			if status, body := send(w); status != 503 || !strings.Contains(body, "it is not known") || writes.Load() != before+1 {
				t.Errorf("%s: %d %s, sent %d times", w.Method, status, body, writes.Load()-before)
			}
		}
		// An upgrade that was refused leaves a connection behind.
		upgrade := []string{"Upgrade", "websocket", "Connection", "Upgrade"}
		for _, path := range []string{"/refused", "/refused", "/api/v1/namespaces/x/pods/y/exec?command=touch"} {
			if status, body := send(request("GET", path, upgrade...)); status != 403 && status != 503 {
				t.Errorf("an upgrade: %d %s", status, body)
			}
		}
		if n := upgrades.Load(); n != 1 {
			t.Errorf("an upgrade was sent %d times", n)
		}
	}
}
