package bench

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// frameBytes is the DATA frame size that every client accepts, frameHead the size of a frame
	// header.
	frameBytes, frameHead = 16 << 10, 9
	// gatherBytes is how many bytes of frames are written at a time, so that TLS makes full records
	// of them.
	gatherBytes = 256 << 10
)

// A floorConn is one of the floor's HTTP/2 connections. It does the minimum that sends the bytes:
// stored bodies are already in frames, many of which are written at a time; one write delivers an
// event to all watches of a connection; flow-control windows are ignored, because the benchmark's
// clients keep them wide.
type floorConn struct {
	nc net.Conn
	of *floorHandler

	// mu guards writing and the fields below.
	mu      sync.Mutex
	out     bytes.Buffer
	framer  *http2.Framer // writes to out
	encoder *hpack.Encoder
	block   bytes.Buffer
	watches []uint32 // their stream ids
}

// serveHTTP2 serves a connection until its client leaves.
func (h *floorHandler) serveHTTP2(nc net.Conn) error {
	c := &floorConn{nc: nc, of: h}
	c.framer, c.encoder = http2.NewFramer(&c.out, nil), hpack.NewEncoder(&c.block)
	in := bufio.NewReader(nc)
	if _, err := in.Discard(len(http2.ClientPreface)); err != nil {
		return err
	}
	if err := c.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1000}); err != nil {
		return err
	}
	h.mu.Lock()
	h.conns[c] = struct{}{}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.conns, c)
		h.mu.Unlock()
	}()
	frames := http2.NewFramer(io.Discard, in)
	frames.SetReuseFrames()
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := frames.ReadFrame()
		if err == nil {
			err = c.heed(f)
		}
		if err != nil {
			return err
		}
	}
}

// heed handles a frame.
func (c *floorConn) heed(f http2.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			_ = c.framer.WriteSettingsAck() // writing to a Buffer does not fail
		}
	case *http2.PingFrame:
		_ = c.framer.WritePing(true, f.Data)
	case *http2.MetaHeadersFrame:
		return c.respond(f.StreamID, f.PseudoValue("path"), f.RegularFields())
	}
	return c.flush()
}

// respond responds with a stored body, with 304 if the client has it already, or opens a watch.
func (c *floorConn) respond(stream uint32, path string, fields []hpack.HeaderField) error {
	if path == "/watch" {
		c.watches = append(c.watches, stream)
		c.head(stream, false, "200", [2]string{"content-type", "application/json"})
		return c.flush()
	}
	b := c.of.body(path)
	status := "200"
	for _, f := range fields {
		if f.Name == "if-none-match" {
			status = "304"
		}
	}
	if b == nil {
		status = "404"
	}
	if status != "200" {
		c.head(stream, true, status)
		return c.flush()
	}
	header := [][2]string{{"content-type", b.contentType}, {"content-length", strconv.Itoa(len(b.body))}}
	if b.encoding != "" {
		header = append(header, [2]string{"content-encoding", b.encoding})
	}
	c.head(stream, false, status, header...)
	return c.send(stream, b)
}

// head appends a HEADERS frame to out.
func (c *floorConn) head(stream uint32, end bool, status string, fields ...[2]string) {
	c.block.Reset()
	_ = c.encoder.WriteField(hpack.HeaderField{Name: ":status", Value: status})
	for _, f := range fields {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.block.Bytes(), EndStream: end, EndHeaders: true})
}

// send writes out and then a body.
func (c *floorConn) send(stream uint32, b *floorBody) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.frames == nil {
		b.frames = dataFrames(b.body)
	}
	for at := 0; at < len(b.frames); at += frameHead + frameBytes {
		binary.BigEndian.PutUint32(b.frames[at+5:], stream)
	}
	first := min(len(b.frames), gatherBytes-c.out.Len())
	_, _ = c.out.Write(b.frames[:first])
	if err := c.flush(); err != nil {
		return err
	}
	for rest := b.frames[first:]; len(rest) > 0; {
		n, err := c.nc.Write(rest[:min(len(rest), gatherBytes)])
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// dataFrames splits a body into frames, the last of which ends the stream.
func dataFrames(body []byte) []byte {
	var out []byte
	for {
		n := min(len(body), frameBytes)
		end := byte(0)
		if n == len(body) {
			end = byte(http2.FlagDataEndStream)
		}
		out = append(out, byte(n>>16), byte(n>>8), byte(n), byte(http2.FrameData), end, 0, 0, 0, 0)
		out = append(out, body[:n]...)
		if body = body[n:]; end != 0 {
			return out
		}
	}
}

// flush writes out to the connection.
func (c *floorConn) flush() error {
	if c.out.Len() == 0 {
		return nil
	}
	_, err := c.nc.Write(c.out.Bytes())
	c.out.Reset()
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	return nil
}

// emit sends an event to all watches of the connection at once.
func (c *floorConn) emit(event []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, stream := range c.watches {
		_ = c.framer.WriteData(stream, false, event)
	}
	_ = c.flush() // the client may have left
}
