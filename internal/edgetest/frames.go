//go:build unix

package edgetest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// FrameConn is an HTTP/2 client that writes frames.
type FrameConn struct {
	*http2.Framer
	T       testing.TB
	NextID  uint32
	Encoder *hpack.Encoder
	Block   bytes.Buffer
	// lenient means that writes may fail; lastErr is the error of the last request.
	lenient bool
	lastErr error
}

// Tolerant allows requests to fail.
func (f *FrameConn) Tolerant() { f.lenient = true }

// Failed returns why the last request could not be written.
func (f *FrameConn) Failed() error { return f.lastErr }

func NewFrameConn(t testing.TB, conn net.Conn, settings ...http2.Setting) *FrameConn {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(Timeout)); err != nil {
		t.Fatal(err)
	}
	f := &FrameConn{Framer: http2.NewFramer(conn, conn), T: t, NextID: 1}
	f.Encoder = hpack.NewEncoder(&f.Block)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return f
}

// Request begins a request and returns its stream. Without a body the request is complete.
func (f *FrameConn) Request(method, path string, body bool, header ...string) uint32 {
	f.T.Helper()
	f.Block.Reset()
	fields := append([]string{":method", method, ":scheme", "https", ":authority", "x", ":path", path}, header...)
	for i := 0; i < len(fields); i += 2 {
		if err := f.Encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			f.T.Fatal(err)
		}
	}
	id := f.NextID
	f.NextID += 2
	f.lastErr = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.Block.Bytes(), EndHeaders: true, EndStream: !body})
	if f.lastErr != nil && !f.lenient {
		f.T.Fatal(f.lastErr)
	}
	return id
}

// Until reads frames until want returns true for one.
func (f *FrameConn) Until(want func(http2.Frame) bool) {
	f.T.Helper()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			f.T.Fatal(err)
		}
		if want(frame) {
			return
		}
		if s, ok := frame.(*http2.SettingsFrame); ok && !s.IsAck() {
			if err := f.WriteSettingsAck(); err != nil {
				f.T.Fatal(err)
			}
		}
	}
}

// IsReset returns whether a frame resets a stream.
func IsReset(id uint32) func(http2.Frame) bool {
	return func(frame http2.Frame) bool {
		_, ok := frame.(*http2.RSTStreamFrame)
		return ok && frame.Header().StreamID == id
	}
}

// RequestInFrames begins a request whose header need not fit into one frame.
func (f *FrameConn) RequestInFrames(method, path string, header ...string) uint32 {
	f.T.Helper()
	f.Block.Reset()
	fields := append([]string{":method", method, ":scheme", "https", ":authority", "x", ":path", path}, header...)
	for i := 0; i < len(fields); i += 2 {
		if err := f.Encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			f.T.Fatal(err)
		}
	}
	id := f.NextID
	f.NextID += 2
	block := f.Block.Bytes()
	first := block[:min(len(block), 16<<10)]
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: len(first) == len(block), EndStream: true})
	for block = block[len(first):]; err == nil && len(block) > 0; {
		part := block[:min(len(block), 16<<10)]
		block = block[len(part):]
		err = f.WriteContinuation(id, len(block) == 0, part)
	}
	if err != nil {
		f.T.Fatal(err)
	}
	return id
}

// IsEnd returns whether a frame ends a stream cleanly.
func IsEnd(id uint32) func(http2.Frame) bool {
	return func(frame http2.Frame) bool {
		data, ok := frame.(*http2.DataFrame)
		return ok && data.StreamID == id && data.StreamEnded()
	}
}

// Trailers ends a request's body with a trailer.
func (f *FrameConn) Trailers(id uint32, name, value string) {
	f.T.Helper()
	f.Block.Reset()
	_ = f.Encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.Block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
		f.T.Fatal(err)
	}
}

// GoAwayOf reads until the connection ends and returns the error code of its GOAWAY, and whether
// there was one.
func (f *FrameConn) GoAwayOf() (code http2.ErrCode, received bool) {
	f.T.Helper()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			var timeout interface{ Timeout() bool }
			if errors.As(err, &timeout) && timeout.Timeout() {
				f.T.Fatal("the connection is still open")
			}
			return code, received
		}
		if g, ok := frame.(*http2.GoAwayFrame); ok {
			code, received = g.ErrCode, true
		}
	}
}

// Flood writes at most n times, until the server closes the connection.
func (f *FrameConn) Flood(n int, write func(i int) error) (written int) {
	for written < n {
		if write(written) != nil {
			return written
		}
		written++
	}
	return written
}

// Rest reads the rest of a response's body.
func (f *FrameConn) Rest(id uint32) string {
	f.T.Helper()
	var body strings.Builder
	f.Until(func(frame http2.Frame) bool {
		data, ok := frame.(*http2.DataFrame)
		if !ok || data.StreamID != id {
			return false
		}
		body.Write(data.Data())
		return data.StreamEnded()
	})
	return body.String()
}

// BlockOf encodes fields given as alternating lines of names and values.
func (f *FrameConn) BlockOf(lines string) []byte {
	f.Block.Reset()
	fields := strings.Split(lines, "\n")
	for i := 0; i+1 < len(fields); i += 2 {
		_ = f.Encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return f.Block.Bytes()
}

// Fields begins a request with exactly these fields.
func (f *FrameConn) Fields(id uint32, fields ...string) {
	f.T.Helper()
	f.Block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = f.Encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.Block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
		f.T.Fatal(err)
	}
}

// Resets waits for the reset of a stream, and reports whether the connection continues after it.
func (f *FrameConn) Resets(id uint32) bool {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return false
		}
		if IsReset(id)(frame) {
			return true
		}
	}
}

// Tunnel begins an extended CONNECT.
func (f *FrameConn) Tunnel(path string, header ...string) uint32 {
	f.T.Helper()
	return f.Request("CONNECT", path, true, append([]string{":protocol", "websocket", "sec-websocket-version", "13"}, header...)...)
}

// Write sends data on a stream.
func (f *FrameConn) Write(id uint32, data string, end bool) {
	f.T.Helper()
	for {
		n := min(len(data), 16<<10)
		if err := f.WriteData(id, end && n == len(data), []byte(data[:n])); err != nil {
			f.T.Fatal(err)
		}
		if data = data[n:]; data == "" {
			return
		}
	}
}

// Respond reads the header of the response.
func (f *FrameConn) Respond(id uint32) map[string]string {
	f.T.Helper()
	header := map[string]string{}
	f.Until(func(frame http2.Frame) bool {
		head, ok := frame.(*http2.MetaHeadersFrame)
		if ok = ok && head.StreamID == id; ok {
			for _, field := range head.Fields {
				header[field.Name] = field.Value
			}
		}
		return ok
	})
	return header
}

// Expect reads DATA frames of the stream id until their contents are want. It fails the test if the
// contents differ.
func (f *FrameConn) Expect(id uint32, want string) {
	f.T.Helper()
	for got := ""; got != want; {
		f.Until(func(frame http2.Frame) bool {
			data, ok := frame.(*http2.DataFrame)
			if ok = ok && data.StreamID == id; ok {
				got += string(data.Data())
			}
			return ok
		})
		if !strings.HasPrefix(want, got) {
			f.T.Fatalf("got %q, want %q", got, want)
		}
	}
}

// ExpectReset reads the reset of a stream.
func (f *FrameConn) ExpectReset(id uint32, want http2.ErrCode) {
	f.T.Helper()
	f.Until(func(frame http2.Frame) bool {
		reset, ok := frame.(*http2.RSTStreamFrame)
		if ok = ok && reset.StreamID == id; ok && reset.ErrCode != want {
			f.T.Errorf("reset with %v, want %v", reset.ErrCode, want)
		}
		return ok
	})
}

// ExpectUpdate reads until the window of a stream, or of the connection, has grown.
func (f *FrameConn) ExpectUpdate(id uint32) {
	f.T.Helper()
	f.Until(func(frame http2.Frame) bool {
		_, ok := frame.(*http2.WindowUpdateFrame)
		return ok && frame.Header().StreamID == id
	})
}
