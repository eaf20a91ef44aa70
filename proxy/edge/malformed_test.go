package edge

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/api"
)

// TestHTTP2Malformed: requests that another reader could take for another request.
func TestHTTP2Malformed(t *testing.T) {
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		return text(fmt.Sprintf("%q %q %q", r.Header, r.RawPath, r.Host))
	})
	get := []string{":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/"}
	with := func(fields ...string) []string { return append(append([]string{}, get...), fields...) }
	for name, fields := range map[string][]string{
		"blank before a method": {":method", " GET", ":scheme", "https", ":authority", "x", ":path", "/"},
		"tab behind authority":  {":method", "GET", ":scheme", "https", ":authority", "x\t", ":path", "/"},
		"blank in the path":     {":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/a b"},
		"fragment":              {":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/a#b"},
		"authorities":           {":method", "GET", ":scheme", "https", ":path", "/", ":authority", "", ":authority", "b"},
		"authorities, same":     {":method", "GET", ":scheme", "https", ":path", "/", ":authority", "", ":authority", ""},
		"host and authority":    with("host", "y"),
		"field of a connection": with("proxy-connection", "close"),
		"pseudo field behind":   with("a", "b", ":path", "/c"),
		"protocol of a GET":     with(":protocol", "websocket"),
		"lengths":               with("content-length", "0", "content-length", "1"),
	} {
		t.Run(name, func(t *testing.T) {
			c := ts.dialFrames()
			c.fields(1, fields...)
			c.until(func(frame http2.Frame) bool {
				if data, ok := frame.(*http2.DataFrame); ok {
					t.Fatalf("served: %s", data.Data())
				}
				r, ok := frame.(*http2.RSTStreamFrame)
				if ok && r.ErrCode != http2.ErrCodeProtocol {
					t.Errorf("reset with %v", r.ErrCode)
				}
				return ok
			})
		})
	}
}

// fields begins a request of nothing but these.
func (f *frameConn) fields(id uint32, fields ...string) {
	f.t.Helper()
	f.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
		f.t.Fatal(err)
	}
}

// TestHTTP2Blanks: white space around a value is none of it, as over HTTP/1.1.
func TestHTTP2Blanks(t *testing.T) {
	got := make(chan string, 1)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		got <- r.Header.Get("Authorization")
		return text("")
	})
	for value, want := range map[string]string{"Bearer ": "Bearer", " Bearer a\t": "Bearer a", " ": ""} {
		c := ts.dialFrames()
		c.request("GET", "/", false, "authorization", value)
		if header := receive(t, got, "request"); header != want {
			t.Errorf("%q came as %q, want %q", value, header, want)
		}
	}
}

// TestHTTP2Crumbs: a cookie in many fields costs no more than its length.
func TestHTTP2Crumbs(t *testing.T) {
	got := make(chan string, 1)
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		got <- strings.Join(r.Header.Values("Cookie"), "|")
		return text("")
	})
	c := ts.dialFrames()
	header := []string{"cookie", "a=" + strings.Repeat("b", 24<<10)}
	for range 900 {
		header = append(header, "cookie", "c")
	}
	c.request("GET", "/", false)
	receive(t, got, "request")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.requestInFrames("GET", "/", header...)
	cookie := receive(t, got, "request")
	runtime.ReadMemStats(&after)
	if want := header[1] + strings.Repeat("; c", 900); cookie != want {
		t.Errorf("a cookie of %d bytes, want %d", len(cookie), len(want))
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

// TestHTTP2HeadTooLarge: a response to HEAD has no body, whoever makes it.
func TestHTTP2HeadTooLarge(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("not reached") })
	c := ts.dialFrames()
	var large []string
	for range 7 {
		large = append(large, "a", strings.Repeat("x", 10<<10))
	}
	id := c.requestInFrames("HEAD", "/", large...)
	c.until(func(frame http2.Frame) bool {
		h, ok := frame.(*http2.MetaHeadersFrame)
		if ok && (h.PseudoValue("status") != "431" || !h.StreamEnded()) {
			t.Errorf("status %s, ended: %v", h.PseudoValue("status"), h.StreamEnded())
		}
		return ok && h.StreamID == id
	})
}

// TestHTTP2OwnFields: fields that belong to a connection of HTTP/1.1 are not sent.
func TestHTTP2OwnFields(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response {
		resp := text("x")
		for _, name := range []string{"Upgrade", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding"} {
			resp.Header = append(resp.Header, api.HeaderField{Name: name, Value: "x"})
		}
		return resp
	})
	c := ts.dialFrames()
	c.request("GET", "/", false)
	c.until(func(frame http2.Frame) bool {
		h, ok := frame.(*http2.MetaHeadersFrame)
		if ok {
			for _, f := range h.RegularFields() {
				switch f.Name {
				case "upgrade", "proxy-connection", "keep-alive", "transfer-encoding":
					t.Errorf("sent: %v", f)
				}
			}
		}
		return ok
	})
}

// TestHTTP2HeaderBombs: headers are bounded in bytes, in frames and decoded.
func TestHTTP2HeaderBombs(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("x") })
	for name, tc := range map[string]struct {
		write func(f *frameConn) error
		want  http2.ErrCode
	}{
		"continuations": {func(f *frameConn) (err error) {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			for range headerFrames + 1 {
				err = errors.Join(err, f.WriteContinuation(1, false, nil))
			}
			return err
		}, http2.ErrCodeEnhanceYourCalm},
		"large continuations": {func(f *frameConn) (err error) {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			for range 9 {
				err = errors.Join(err, f.WriteContinuation(1, false, []byte(strings.Repeat("\x82", 16<<10))))
			}
			return err
		}, http2.ErrCodeEnhanceYourCalm},
		"endless string": {func(f *frameConn) (err error) {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0, 1, 'x', 0x7f, 0xff, 0xff, 0xff, 0x07}})
			for range 9 {
				err = errors.Join(err, f.WriteContinuation(1, false, []byte(strings.Repeat("x", 16<<10))))
			}
			return err
		}, http2.ErrCodeEnhanceYourCalm},
		"table growth": {func(f *frameConn) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x3f, 0xff, 0xff, 0x07, 0x82}, EndHeaders: true, EndStream: true})
		}, http2.ErrCodeCompression},
		"other frame between": {func(f *frameConn) error {
			return errors.Join(f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}), f.WritePing(false, [8]byte{}))
		}, http2.ErrCodeProtocol},
		"bad padding": {func(f *frameConn) error {
			f.request("POST", "/", true)
			return f.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{200, 1, 2})
		}, http2.ErrCodeProtocol},
		"bad padding of a header": {func(f *frameConn) error {
			return f.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersPadded|http2.FlagHeadersEndHeaders, 1, []byte{200, 1, 2})
		}, http2.ErrCodeProtocol},
		"many settings": {func(f *frameConn) error {
			return f.WriteSettings(slices.Repeat([]http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1}}, mostSettings+1)...)
		}, http2.ErrCodeEnhanceYourCalm},
		"large frame": {func(f *frameConn) error {
			f.request("POST", "/", true)
			return f.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, frameSize+1))
		}, http2.ErrCodeFrameSize},
	} {
		t.Run(name, func(t *testing.T) {
			c := ts.dialFrames()
			if err := tc.write(c); err != nil {
				t.Log(err) // the server need not read it all
			}
			if code, told := c.goAwayOf(); code != tc.want || !told {
				t.Errorf("ended with %v, told: %v", code, told)
			}
		})
	}
}

// TestHTTP2IndexedBomb: a few bytes that stand for much are counted decoded.
func TestHTTP2IndexedBomb(t *testing.T) {
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("not reached") })
	c := ts.dialFrames()
	c.block.Reset()
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/"}, {Name: "a", Value: strings.Repeat("x", 4000)}} {
		_ = c.encoder.WriteField(f)
	}
	for range 10_000 {
		c.block.WriteByte(0x80 | 62) // the newest of the table
	}
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
		t.Fatal(err)
	}
	c.until(func(frame http2.Frame) bool {
		h, ok := frame.(*http2.MetaHeadersFrame)
		if ok && h.PseudoValue("status") != "431" {
			t.Errorf("status %s", h.PseudoValue("status"))
		}
		return ok
	})
}
