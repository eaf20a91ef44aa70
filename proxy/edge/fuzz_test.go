package edge

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
)

// FuzzRequestHead reads a head as the server does and as net/http does: what both
// accept must mean the same to both, or a request could be smuggled past one of
// them.
func FuzzRequestHead(f *testing.F) {
	for _, seed := range []string{
		benchRequest,
		"GET / HTTP/1.0\r\n\r\n",
		"POST /a%20b?c=d HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"GET http://a:1/b HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nfoo:bar\r\nfoo:\tbaz \r\nConnection: close, x\r\n\r\n",
		"GET / HTTP/1.1\nHost: x\n\n",
		"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n",
		"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET a:///b HTTP/1.1\r\nHost: x\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nCookie: a=b\r\nCookie: c=d\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	s, err := newServer(Options{Handler: handlerFunc(func(context.Context, *api.Request) *api.Response { return nil })})
	if err != nil {
		f.Fatal(err)
	}
	c := &http1Conn{&conn{Shared: &s.Shared}}
	f.Fuzz(func(t *testing.T, data []byte) {
		br := bufio.NewReaderSize(bytes.NewReader(data), 64<<10)
		req := fasthttp.AcquireRequest()
		defer fasthttp.ReleaseRequest(req)
		if req.Header.Read(br) != nil {
			return
		}
		x := &exchange{c: c}
		if x.own(&req.Header) != nil {
			return
		}
		for bytes.HasPrefix(data, []byte("\r\n")) || bytes.HasPrefix(data, []byte("\n")) {
			data = data[bytes.IndexByte(data, '\n')+1:] // net/http does not skip empty lines
		}
		theirs := bufio.NewReaderSize(bytes.NewReader(data), 64<<10)
		want, err := http.ReadRequest(theirs)
		if err != nil {
			return
		}
		compareRequests(t, x, req.Header.ContentLength(), want)
		if want.Body == http.NoBody || want.ContentLength > 0 {
			if ours, other := br.Buffered(), theirs.Buffered(); ours != other {
				t.Errorf("%d bytes behind the head, net/http leaves %d", ours, other)
			}
		}
	})
}

func compareRequests(t *testing.T, x *exchange, length int, want *http.Request) {
	t.Helper()
	r := &x.req
	if r.Method != want.Method || r.Host != want.Host || r.RawQuery != want.URL.RawQuery {
		t.Errorf("got %q %q %q, want %q %q %q", r.Method, r.Host, r.RawQuery, want.Method, want.Host, want.URL.RawQuery)
	}
	if strings.HasPrefix(want.RequestURI, "/") && r.Path != want.URL.Path {
		t.Errorf("path %q, want %q", r.Path, want.URL.Path)
	}
	// A request with two framings is the last one of its connection here; net/http drops one of the framings.
	if keep := x.keepAlive && !x.mustClose; keep == want.Close && (keep || length != -1) {
		t.Errorf("keep alive %v, want %v", keep, !want.Close)
	}
	wantLength := want.ContentLength
	if len(want.TransferEncoding) > 0 {
		wantLength = -1
	}
	if int64(max(length, 0)) != max(wantLength, 0) || (length == -1) != (wantLength == -1) {
		t.Errorf("length %d, want %d", length, wantLength)
	}
	got := map[string][]string{}
	for _, f := range r.Header {
		got[f.Name] = append(got[f.Name], f.Value)
	}
	for _, own := range []string{"Content-Length", "Transfer-Encoding", "Trailer", "Expect", "Pragma", "Cache-Control"} {
		want.Header.Del(own) // ReadRequest makes a Cache-Control of Pragma
		delete(got, own)
	}
	for name, values := range want.Header {
		if !slices.Equal(got[textproto.CanonicalMIMEHeaderKey(name)], values) {
			t.Errorf("%s: %q, want %q", name, got[name], values)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("lines that net/http does not see: %q", got)
	}
}

// FuzzConnection sends anything to a server, which answers or not but goes on.
func FuzzConnection(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nT: x\r\n\r\n"))
	for _, path := range []string{"u", "d"} {
		f.Add([]byte("GET /" + path + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello, that is enough"))
	}
	ts := startServer(f, fuzzed)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := net.Dial("tcp", ts.sidecar)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			_, _ = c.Write(data)
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(io.Discard, c)
		if log := ts.log.String(); log != "" {
			t.Fatalf("logged: %s", log)
		}
	})
}

// FuzzHTTP2 sends any frames to a server, which answers or not but goes on.
func FuzzHTTP2(f *testing.F) {
	frames := func(write func(fr *http2.Framer)) []byte {
		var b bytes.Buffer
		write(http2.NewFramer(&b, nil))
		return b.Bytes()
	}
	get := []byte{0x82, 0x87, 0x84, 0x41, 1, 'x'}
	post := []byte{0x83, 0x87, 0x84, 0x41, 1, 'x'}
	connect := append([]byte{2, 7}, "CONNECT\x00\x09:protocol\x09websocket\x87\x41\x01x\x04\x02/"...) // the last byte of the path is missing
	for _, write := range []func(fr *http2.Framer){
		func(fr *http2.Framer) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get, EndHeaders: true, EndStream: true})
			_ = fr.WriteWindowUpdate(0, 100)
			_ = fr.WriteRSTStream(1, http2.ErrCodeCancel)
		},
		func(fr *http2.Framer) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: post, EndHeaders: true, PadLength: 3})
			_ = fr.WriteDataPadded(1, false, []byte("body"), make([]byte, 5))
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0, 1, 'a', 1, 'b'}, EndHeaders: true, EndStream: true})
		},
		func(fr *http2.Framer) {
			_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: get[:2], EndStream: true})
			_ = fr.WriteContinuation(3, true, get[2:])
			_ = fr.WritePing(false, [8]byte{})
			_ = fr.WritePriority(5, http2.PriorityParam{StreamDep: 3})
			_ = fr.WriteGoAway(0, http2.ErrCodeNo, nil)
		},
		func(fr *http2.Framer) {
			for id, path := range map[uint32]byte{1: 'u', 3: 'd'} {
				_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: append(connect, path), EndHeaders: true})
				_ = fr.WriteData(id, false, []byte("hello"))
				_ = fr.WriteDataPadded(id, id == 3, []byte("enough"), make([]byte, 5))
			}
			_ = fr.WriteRSTStream(1, http2.ErrCodeCancel)
		},
		func(fr *http2.Framer) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: append(get[:2:2], 4, 2, '/', 'b'), EndHeaders: true, EndStream: true})
			_ = fr.WriteWindowUpdate(1, 100_000)
			_ = fr.WriteWindowUpdate(0, 1)
			_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
			_ = fr.WriteWindowUpdate(0, 1<<30)
		},
	} {
		f.Add(frames(write))
	}
	ts := startServer(f, fuzzed, func(o *Options) { o.WriteTimeout, o.BodyIdleTimeout = 100*time.Millisecond, 100*time.Millisecond })
	settings := frames(func(fr *http2.Framer) { _ = fr.WriteSettings() })
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := net.Dial("tcp", ts.sidecar)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			_, _ = c.Write(append(append([]byte(http2.ClientPreface), settings...), data...))
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(io.Discard, c)
		if log := ts.log.String(); log != "" {
			t.Fatalf("logged: %s", log)
		}
	})
}

// fuzzed answers in all ways there are: with what is long, with a tunnel of either kind, or
// when it has read the body.
func fuzzed(_ context.Context, r *api.Request) *api.Response {
	switch {
	case r.Upgrade != "" && r.Path == "/u":
		return &api.Response{Status: 101, Header: switchTo(r.Upgrade), Upgrade: func(c net.Conn) { _, _ = io.Copy(c, c) }}
	case r.Upgrade != "":
		return &api.Response{Status: 101, Header: switchTo(r.Upgrade), Stream: &countingDuplex{}}
	case r.Path == "/b":
		return text(strings.Repeat("x", 3*queueLimit))
	case r.Body != nil:
		_, _ = io.Copy(io.Discard, r.Body)
	}
	return text(r.Path)
}

// countingDuplex wants a few bytes, and says goodbye then.
type countingDuplex struct {
	w   api.StreamWriter
	got int
}

// Start implements api.Stream.
func (d *countingDuplex) Start(w api.StreamWriter) {
	d.w = w
	_ = w.WriteFrames([][]byte{[]byte("hello")})
}

// Stop implements api.Stream.
func (*countingDuplex) Stop() {}

// Receive implements api.Duplex.
func (d *countingDuplex) Receive(p []byte) error {
	if d.got += len(p); d.got > 8 {
		d.w.Close()
		return io.EOF
	}
	return nil
}
