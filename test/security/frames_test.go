package security

import (
	"bytes"
	"crypto/tls"
	"io"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frameConn is an HTTP/2 client that writes raw frames, including ones that no library would send.
type frameConn struct {
	*http2.Framer
	t       *testing.T
	nextID  uint32
	encoder *hpack.Encoder
	block   bytes.Buffer
}

// dialFrames opens an HTTP/2 connection with the given settings. It is closed at the end of the
// test.
func dialFrames(t *testing.T, url string, settings ...http2.Setting) *frameConn {
	t.Helper()
	conn, ok := dial(t, url, nil, "h2").(*tls.Conn)
	if !ok || conn.ConnectionState().NegotiatedProtocol != "h2" {
		t.Fatal("the gateway did not negotiate HTTP/2")
	}
	must(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	c := &frameConn{Framer: http2.NewFramer(conn, conn), t: t, nextID: 1}
	c.encoder = hpack.NewEncoder(&c.block)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err := io.WriteString(conn, http2.ClientPreface)
	must(t, err)
	must(t, c.WriteSettings(settings...))
	return c
}

// request starts a request and returns its stream ID. A request without a body is complete.
func (c *frameConn) request(method, path, token string, body bool, header ...string) uint32 {
	c.t.Helper()
	c.block.Reset()
	fields := append([]string{":method", method, ":scheme", "https", ":authority", "x", ":path", path}, header...)
	if token != "" {
		fields = append(fields, "authorization", "Bearer "+token)
	}
	for i := 0; i < len(fields); i += 2 {
		must(c.t, c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	id := c.nextID
	c.nextID += 2
	must(c.t, c.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: !body,
	}))
	return id
}

// until reads frames until want returns true for one. It returns false if the connection ends
// first.
func (c *frameConn) until(want func(http2.Frame) bool) bool {
	c.t.Helper()
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			c.t.Logf("reading a frame: %v", err)
			return false
		}
		if want(frame) {
			return true
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				must(c.t, c.WriteSettingsAck())
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				must(c.t, c.WritePing(true, f.Data))
			}
		}
	}
}

// status returns the status in a frame, or "".
func status(frame http2.Frame) string {
	if h, ok := frame.(*http2.MetaHeadersFrame); ok {
		return h.PseudoValue("status")
	}
	return ""
}
