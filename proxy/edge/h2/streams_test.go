package h2

import (
	"bufio"
	"bytes"
	"context"
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

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// TestHTTP2StepIn: a request that takes long does not hold up what comes behind it.
func TestHTTP2StepIn(t *testing.T) {
	release := make(chan struct{})
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path == "/slow" {
			<-release
		}
		return edgetest.Text(r.Path)
	})
	c := ts.DialFrames()
	var slow []uint32
	for range 50 {
		slow = append(slow, c.Request("GET", "/slow", false))
	}
	fast := c.Request("GET", "/fast", false)
	if err := c.WritePing(false, [8]byte{1}); err != nil {
		t.Fatal(err)
	}
	c.Until(edgetest.IsEnd(fast))
	close(release)
	for len(slow) > 0 {
		c.Until(func(frame http2.Frame) bool {
			for i, id := range slow {
				if edgetest.IsEnd(id)(frame) {
					slow = append(slow[:i], slow[i+1:]...)
					return true
				}
			}
			return false
		})
	}
}

// TestHTTP2Fair: a small answer, and a list, do not wait for the end of another list.
func TestHTTP2Fair(t *testing.T) {
	var endlessOnes atomic.Int32
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		switch r.Path {
		case "/endless":
			endlessOnes.Add(1)
			return &api.Response{Status: 200, BodyTo: edgetest.WriterTo(edgetest.Endless), Length: 1 << 40, Ready: true}
		case "/list":
			return &api.Response{Status: 200, BodyTo: bytes.NewReader(make([]byte, 4<<20)), Length: 4 << 20, Ready: true}
		}
		return edgetest.Text("small")
	})
	c := ts.Client(true)
	c.Timeout = 0
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var readers sync.WaitGroup
	for range 2 {
		req, _ := http.NewRequestWithContext(ctx, "GET", "https://"+ts.Secure+"/endless", nil)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		readers.Go(func() {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		})
	}
	for _, path := range []string{"/small", "/list", "/small", "/list"} {
		req, _ := http.NewRequestWithContext(ctx, "GET", "https://"+ts.Secure+path, nil)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	cancel()
	readers.Wait()
	if got := ts.Gauge("kubeweir_connections", "secure", "h2"); got != 1 || endlessOnes.Load() != 2 {
		t.Errorf("%v connections", got)
	}
}

// TestHTTP2OneWrite: frames for many streams of a connection are one write.
func TestHTTP2OneWrite(t *testing.T) {
	const n = 20
	writers := make(chan api.StreamWriter, n)
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Stream: &edgetest.StreamFunc{OnStart: func(w api.StreamWriter) { writers <- w }}}
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	counter := &edgetest.CountingListener{Listener: ln}
	if err := ts.Serve(counter, api.ListenerSecure); err != nil {
		t.Fatal(err)
	}
	ts.Secure = ln.Addr().String()
	c := ts.DialFrames()
	_ = c.WriteWindowUpdate(0, 1<<20)
	var all []api.SharedWriter
	for range n {
		c.Request("GET", "/", false)
		all = append(all, edgetest.Receive(t, writers, "watch").(api.SharedWriter))
	}
	_ = c.WritePing(false, [8]byte{})
	c.Until(func(frame http2.Frame) bool { _, ok := frame.(*http2.PingFrame); return ok })
	before := counter.Writes.Load()
	for _, w := range all {
		if !w.QueueFrames([][]byte{bytes.Repeat([]byte("x"), 5<<10)}) {
			t.Fatal("the frames are not taken")
		}
	}
	for _, w := range all {
		w.Flush()
	}
	for read := 0; read < n*5<<10; {
		c.Until(func(frame http2.Frame) bool {
			if data, ok := frame.(*http2.DataFrame); ok {
				read += len(data.Data())
				return true
			}
			return false
		})
	}
	if got := counter.Writes.Load() - before; got != 1 {
		t.Errorf("%d writes", got)
	}
	if all[0].QueueFrames([][]byte{make([]byte, 2*queueLimit)}) {
		t.Error("more than there is room for is taken")
	}
}

// TestHTTP2GoAway: what is begun before the client knows is served, later requests are
// not, and the client is told which were.
func TestHTTP2GoAway(t *testing.T) {
	release := make(chan struct{})
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path == "/slow" {
			<-release
		}
		return edgetest.Text(r.Path)
	})
	c := ts.DialFrames()
	first := c.Request("GET", "/slow", false)
	isGoAway := func(last uint32) func(http2.Frame) bool {
		return func(frame http2.Frame) bool {
			g, ok := frame.(*http2.GoAwayFrame)
			if ok && (g.LastStreamID != last || g.ErrCode != http2.ErrCodeNo) {
				t.Errorf("%v", g)
			}
			return ok
		}
	}
	c.Request("GET", "/warm", false) // so that the server knows of the first
	c.Until(edgetest.IsEnd(3))
	over := make(chan error, 1)
	go func() { over <- ts.Shutdown(context.Background()) }()
	c.Until(isGoAway(maxWindow))
	second := c.Request("GET", "/second", false)
	c.Until(func(frame http2.Frame) bool {
		p, ok := frame.(*http2.PingFrame)
		if ok && !p.IsAck() {
			_ = c.WritePing(true, p.Data)
		}
		return ok
	})
	ended := false
	c.Until(func(frame http2.Frame) bool {
		ended = ended || edgetest.IsEnd(second)(frame)
		return isGoAway(second)(frame)
	})
	c.Request("GET", "/third", false)
	close(release)
	c.Until(func(frame http2.Frame) bool {
		ended = ended || edgetest.IsEnd(second)(frame)
		return edgetest.IsEnd(first)(frame)
	})
	if !ended {
		c.Until(edgetest.IsEnd(second))
	}
	if _, ok := c.GoAwayOf(); ok {
		t.Error("told twice")
	}
	if err := edgetest.Receive(t, over, "end of Shutdown"); err != nil {
		t.Error(err)
	}
}

// TestHTTP2Continue: the client is told to send its body when somebody reads it.
func TestHTTP2Continue(t *testing.T) {
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Path == "/refuse" {
			return &api.Response{Status: 401, Body: []byte("no")}
		}
		b, err := io.ReadAll(r.Body)
		return edgetest.Text(fmt.Sprintf("%s %v %v", b, err, r.Header.Has("Expect")))
	})
	c := ts.DialFrames()
	id := c.Request("POST", "/", true, "expect", "100-continue", "trailer", "t")
	var statuses []string
	c.Until(func(frame http2.Frame) bool {
		if h, ok := frame.(*http2.MetaHeadersFrame); ok {
			if statuses = append(statuses, h.PseudoValue("status")); len(statuses) == 1 {
				_ = c.WriteData(id, false, []byte("abc"))
				c.Trailers(id, "t", "1")
			}
		}
		data, ok := frame.(*http2.DataFrame)
		if ok && len(data.Data()) > 0 && string(data.Data()) != "abc <nil> false" {
			t.Errorf("%q", data.Data())
		}
		return ok && data.StreamEnded()
	})
	if got := strings.Join(statuses, " "); got != "100 200" {
		t.Errorf("statuses %s", got)
	}
	id = c.Request("POST", "/refuse", true, "expect", "100-continue")
	c.Until(func(frame http2.Frame) bool {
		if h, ok := frame.(*http2.MetaHeadersFrame); ok && h.PseudoValue("status") == "100" {
			t.Error("told to send what nobody reads")
		}
		return edgetest.IsReset(id)(frame)
	})
}

// TestHTTP2UnwantedBody: a client is told that nobody reads its body when it has had the
// time to take the answer in, and may send no more than its window meanwhile.
func TestHTTP2UnwantedBody(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("no") })
	c := ts.DialFrames()
	began := time.Now()
	id := c.Request("POST", "/", true)
	c.Until(edgetest.IsEnd(id))
	for range 4 {
		if err := c.WriteData(id, false, make([]byte, frameSize)); err != nil {
			t.Fatal(err)
		}
	}
	c.Until(func(frame http2.Frame) bool {
		if w, ok := frame.(*http2.WindowUpdateFrame); ok && w.StreamID == id {
			t.Error("told to send more")
		}
		if reset, ok := frame.(*http2.RSTStreamFrame); ok && reset.ErrCode != http2.ErrCodeNo {
			t.Errorf("reset with %v", reset.ErrCode)
		}
		return edgetest.IsReset(id)(frame)
	})
	if took := time.Since(began); took < lateReset {
		t.Errorf("reset after %s, together with the answer", took)
	}
}

// TestHTTP2PriorKnowledge: the sidecar listener takes HTTP/2 without TLS from clients
// that begin with it, and TLS only what was negotiated.
func TestHTTP2PriorKnowledge(t *testing.T) {
	object := bytes.Repeat([]byte("x"), 300<<10)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if r.Body != nil {
			b, _ := io.ReadAll(r.Body)
			return edgetest.Text(string(b))
		}
		if r.Path == "/large" {
			return &api.Response{Status: 200, Body: object}
		}
		return edgetest.Text(fmt.Sprint(r.Proto, " ", r.Host, " ", r.Listener == api.ListenerSidecar))
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr, Timeout: edgetest.Timeout}
	for path, want := range map[string]string{"/": "HTTP/2.0 " + ts.Sidecar + " true", "/large": string(object)} {
		resp, err := c.Get("http://" + ts.Sidecar + path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(b) != want {
			t.Errorf("%s: %d bytes, %v", path, len(b), err)
		}
	}
	resp, err := c.Post("http://"+ts.Sidecar, "text/plain", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if string(b) != "body" {
		t.Errorf("got %q", b)
	}
	if got := ts.Gauge("kubeweir_connections", "sidecar", "h2"); got != 1 {
		t.Errorf("%v connections", got)
	}
	late := ts.Dial()
	late.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	late.Response("GET")
	for name, c := range map[string]*edgetest.RawConn{"TLS": ts.DialTLS(), "after HTTP/1.1": late} {
		c.Send("%s", http2.ClientPreface)
		if line, err := bufio.NewReader(c.Br).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 505") {
			t.Errorf("%s: %q, %v", name, line, err)
		}
	}
	slow := ts.Dial() // in parts
	for i := range len(http2.ClientPreface) {
		slow.Send("%s", http2.ClientPreface[i:i+1])
		time.Sleep(time.Millisecond)
	}
	slow.Send("\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	slow.Expect("\x00\x00\x18\x04\x00\x00\x00\x00\x00")
}

// TestHTTP2Header: what a request's header says reaches the handler as over HTTP/1.1.
func TestHTTP2Header(t *testing.T) {
	got := make(chan *api.Request, 1)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response { got <- r; return edgetest.Text("") })
	c := ts.DialFrames()
	c.Request("GET", "/a%20b?c=%zz", false, "cookie", "a=b", "x-one", "1", "cookie", "c=d", "authorization", "t", "x-one", "2", "host", "x")
	r := edgetest.Receive(t, got, "request")
	want := "[{Cookie a=b; c=d} {X-One 1} {Authorization t} {X-One 2}]"
	if fmt.Sprint(r.Header) != want || r.Path != "/a b" || r.RawPath != "/a%20b" || r.RawQuery != "c=%zz" || r.Host != "x" {
		t.Errorf("%v %q %q %q %q", r.Header, r.Path, r.RawPath, r.RawQuery, r.Host)
	}
	for name, header := range map[string][]string{
		"another host": {"host", "y"}, "two hosts": {"host", "x", "host", "x"}, "two tes": {"te", "trailers", "te", "trailers"},
		"capital": {"X-A", "b"}, "space": {"x a", "b"}, "late pseudo": {"a", "b", ":path", "/x"}, "control": {"a", "b\x01"},
		"two lengths": {"content-length", "1", "content-length", "2"}, "length without body": {"content-length", "1"},
		"protocol": {":protocol", "websocket"}, "empty name": {"", "x"}, "upgrade": {"upgrade", "x"},
	} {
		id := c.Request("GET", "/", false, header...)
		c.Until(edgetest.IsReset(id))
		if len(got) > 0 {
			t.Errorf("%s: reached the handler", name)
			<-got
		}
	}
	for _, path := range []string{"x", "/%zz", "/\x01", "http://x/"} {
		c.Until(edgetest.IsReset(c.Request("GET", path, false)))
	}
}

// TestHTTP2Mixed has many requests of all kinds on one connection, some of which are
// given up: none hangs, and nothing is held afterwards.
func TestHTTP2Mixed(t *testing.T) {
	list := bytes.Repeat([]byte("x"), 1<<20)
	ts := edgetest.Start(t, func(ctx context.Context, r *api.Request) *api.Response {
		switch r.Path {
		case "/list":
			return &api.Response{Status: 200, BodyTo: bytes.NewReader(list), Length: int64(len(list)), Ready: true}
		case "/echo":
			return &api.Response{Status: 200, BodyTo: edgetest.WriterTo(func(w io.Writer) (int64, error) { return io.Copy(w, r.Body) }), Length: -1}
		case "/upload":
			n, err := io.Copy(io.Discard, r.Body)
			return edgetest.Text(fmt.Sprint(n, err))
		case "/ignore":
			return edgetest.Text("ignored")
		case "/wait":
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
		case "/watch":
			return &api.Response{Status: 200, Stream: edgetest.LateStream(func(w api.StreamWriter) {
				go func() {
					for range 20 {
						if !w.(api.SharedWriter).QueueFrames([][]byte{list[:3000], list[:5000]}) {
							_ = w.WriteFrames([][]byte{list[:3000], list[:5000]})
						}
					}
					w.(api.SharedWriter).Flush()
					w.Close()
				}()
			})}
		}
		return edgetest.Text("small")
	})
	c := ts.Client(true)
	first, err := c.Get("https://" + ts.Secure + "/small") // or each would dial
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Body.Close()
	sizes := map[string]int{"/list": len(list), "/echo": len(list) / 2, "/watch": 20 * 8000, "/upload": len("524288<nil>") + 1, "/ignore": len("ignored"), "/wait": len("small"), "/small": len("small")}
	var clients sync.WaitGroup
	for i := range soak.Cases(12, 40) {
		clients.Go(func() {
			for path, size := range sizes {
				var body io.Reader
				if path == "/echo" || path == "/upload" || path == "/ignore" {
					body = bytes.NewReader(list[:len(list)/2])
				}
				ctx, cancel := context.WithCancel(context.Background())
				req, _ := http.NewRequestWithContext(ctx, "POST", "https://"+ts.Secure+path, body)
				if body == nil {
					req.Method = "GET"
				}
				resp, err := c.Do(req)
				if err != nil {
					t.Errorf("%s: %v", path, err)
					cancel()
					continue
				}
				if i%4 == 0 { // given up
					_, _ = io.ReadFull(resp.Body, make([]byte, size/2))
					cancel()
				}
				n, err := io.Copy(io.Discard, resp.Body)
				if i%4 != 0 && (err != nil || n != int64(size)) {
					t.Errorf("%s: %d bytes, %v", path, n, err)
				}
				_ = resp.Body.Close()
				cancel()
			}
		})
	}
	clients.Wait()
	end := time.Now().Add(edgetest.Timeout)
	for ts.Held() != 0 {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are held", ts.Held())
		}
		time.Sleep(time.Millisecond)
	}
	if got := ts.Gauge("kubeweir_connections", "secure", "h2"); got != 1 {
		t.Errorf("%v connections", got)
	}
}
