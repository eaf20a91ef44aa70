package h2

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

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// TestHTTP2Malformed: requests that another reader could take for another request.
func TestHTTP2Malformed(t *testing.T) {
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		return edgetest.Text(fmt.Sprintf("%q %q %q", r.Header, r.RawPath, r.Host))
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
			c := ts.DialFrames()
			c.Fields(1, fields...)
			c.Until(func(frame http2.Frame) bool {
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

// TestHTTP2Blanks: white space around a value is none of it, as over HTTP/1.1.
func TestHTTP2Blanks(t *testing.T) {
	got := make(chan string, 1)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		got <- r.Header.Get("Authorization")
		return edgetest.Text("")
	})
	for value, want := range map[string]string{"Bearer ": "Bearer", " Bearer a\t": "Bearer a", " ": ""} {
		c := ts.DialFrames()
		c.Request("GET", "/", false, "authorization", value)
		if header := edgetest.Receive(t, got, "request"); header != want {
			t.Errorf("%q came as %q, want %q", value, header, want)
		}
	}
}

// TestHTTP2Crumbs: a cookie in many fields costs no more than its length.
func TestHTTP2Crumbs(t *testing.T) {
	got := make(chan string, 1)
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		got <- strings.Join(r.Header.Values("Cookie"), "|")
		return edgetest.Text("")
	})
	c := ts.DialFrames()
	header := []string{"cookie", "a=" + strings.Repeat("b", 24<<10)}
	for range 900 {
		header = append(header, "cookie", "c")
	}
	c.Request("GET", "/", false)
	edgetest.Receive(t, got, "request")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.RequestInFrames("GET", "/", header...)
	cookie := edgetest.Receive(t, got, "request")
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
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("not reached") })
	c := ts.DialFrames()
	var large []string
	for range 7 {
		large = append(large, "a", strings.Repeat("x", 10<<10))
	}
	id := c.RequestInFrames("HEAD", "/", large...)
	c.Until(func(frame http2.Frame) bool {
		h, ok := frame.(*http2.MetaHeadersFrame)
		if ok && (h.PseudoValue("status") != "431" || !h.StreamEnded()) {
			t.Errorf("status %s, ended: %v", h.PseudoValue("status"), h.StreamEnded())
		}
		return ok && h.StreamID == id
	})
}

// TestHTTP2OwnFields: fields that belong to a connection of HTTP/1.1 are not sent.
func TestHTTP2OwnFields(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		resp := edgetest.Text("x")
		for _, name := range []string{"Upgrade", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding"} {
			resp.Header = append(resp.Header, api.HeaderField{Name: name, Value: "x"})
		}
		return resp
	})
	c := ts.DialFrames()
	c.Request("GET", "/", false)
	c.Until(func(frame http2.Frame) bool {
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
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("x") })
	for name, tc := range map[string]struct {
		write func(f *edgetest.FrameConn) error
		want  http2.ErrCode
	}{
		"continuations": {func(f *edgetest.FrameConn) (err error) {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			for range headerFrames + 1 {
				err = errors.Join(err, f.WriteContinuation(1, false, nil))
			}
			return err
		}, http2.ErrCodeEnhanceYourCalm},
		"large continuations": {func(f *edgetest.FrameConn) (err error) {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			for range 9 {
				err = errors.Join(err, f.WriteContinuation(1, false, []byte(strings.Repeat("\x82", 16<<10))))
			}
			return err
		}, http2.ErrCodeEnhanceYourCalm},
		"endless string": {func(f *edgetest.FrameConn) (err error) {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0, 1, 'x', 0x7f, 0xff, 0xff, 0xff, 0x07}})
			for range 9 {
				err = errors.Join(err, f.WriteContinuation(1, false, []byte(strings.Repeat("x", 16<<10))))
			}
			return err
		}, http2.ErrCodeEnhanceYourCalm},
		"table growth": {func(f *edgetest.FrameConn) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x3f, 0xff, 0xff, 0x07, 0x82}, EndHeaders: true, EndStream: true})
		}, http2.ErrCodeCompression},
		"other frame between": {func(f *edgetest.FrameConn) error {
			return errors.Join(f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}), f.WritePing(false, [8]byte{}))
		}, http2.ErrCodeProtocol},
		"bad padding": {func(f *edgetest.FrameConn) error {
			f.Request("POST", "/", true)
			return f.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{200, 1, 2})
		}, http2.ErrCodeProtocol},
		"bad padding of a header": {func(f *edgetest.FrameConn) error {
			return f.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersPadded|http2.FlagHeadersEndHeaders, 1, []byte{200, 1, 2})
		}, http2.ErrCodeProtocol},
		"many settings": {func(f *edgetest.FrameConn) error {
			return f.WriteSettings(slices.Repeat([]http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1}}, mostSettings+1)...)
		}, http2.ErrCodeEnhanceYourCalm},
		"large frame": {func(f *edgetest.FrameConn) error {
			f.Request("POST", "/", true)
			return f.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, frameSize+1))
		}, http2.ErrCodeFrameSize},
	} {
		t.Run(name, func(t *testing.T) {
			c := ts.DialFrames()
			if err := tc.write(c); err != nil {
				t.Log(err) // the server need not read it all
			}
			if code, ok := c.GoAwayOf(); code != tc.want || !ok {
				t.Errorf("ended with %v, told: %v", code, ok)
			}
		})
	}
}

// TestHTTP2IndexedBomb: a few bytes that stand for much are counted decoded.
func TestHTTP2IndexedBomb(t *testing.T) {
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("not reached") })
	c := ts.DialFrames()
	c.Block.Reset()
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/"}, {Name: "a", Value: strings.Repeat("x", 4000)}} {
		_ = c.Encoder.WriteField(f)
	}
	for range 10_000 {
		c.Block.WriteByte(0x80 | 62) // the newest of the table
	}
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.Block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
		t.Fatal(err)
	}
	c.Until(func(frame http2.Frame) bool {
		h, ok := frame.(*http2.MetaHeadersFrame)
		if ok && h.PseudoValue("status") != "431" {
			t.Errorf("status %s", h.PseudoValue("status"))
		}
		return ok
	})
}
