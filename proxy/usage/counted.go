package usage

import (
	"errors"
	"net"

	"github.com/kubeweir/kubeweir/internal/api"
)

// countedStream is a stream whose writes are counted.
type countedStream struct {
	api.Stream
	counted *Stream
}

// countedDuplex is one whose client sends, too.
type countedDuplex struct {
	countedStream
	duplex api.Duplex
}

// CountStream returns s with its writes accounted for, until it is stopped.
func (u *Usage) CountStream(s api.Stream, client Client, o StreamOptions) api.Stream {
	c := countedStream{s, u.Open(client, o)}
	if duplex, ok := s.(api.Duplex); ok {
		return &countedDuplex{c, duplex}
	}
	return &c
}

// Start implements api.Stream.
func (s *countedStream) Start(w api.StreamWriter) {
	c := countedWriter{w, s.counted}
	if shared, ok := w.(api.SharedWriter); ok {
		s.Stream.Start(&countedSharedWriter{c, shared})
		return
	}
	s.Stream.Start(&c)
}

// Stop implements api.Stream.
func (s *countedStream) Stop() {
	defer s.counted.Close() // also if the other panics
	s.Stream.Stop()
}

// Receive implements api.Duplex.
func (s *countedDuplex) Receive(p []byte) error { return s.duplex.Receive(p) }

// countedWriter is what a countedStream writes to.
type countedWriter struct {
	api.StreamWriter
	counted *Stream
}

// WriteFrames implements api.StreamWriter.
func (w *countedWriter) WriteFrames(frames [][]byte) error {
	err := w.StreamWriter.WriteFrames(frames)
	if err == nil {
		w.counted.Wrote(sizeOf(frames))
	}
	return err
}

// countedSharedWriter is one whose connection carries others, too.
type countedSharedWriter struct {
	countedWriter
	shared api.SharedWriter
}

// QueueFrames implements api.SharedWriter.
func (w *countedSharedWriter) QueueFrames(frames [][]byte) (taken bool) {
	if taken = w.shared.QueueFrames(frames); taken {
		w.counted.Wrote(sizeOf(frames))
	}
	return taken
}

// Flush implements api.SharedWriter.
func (w *countedSharedWriter) Flush() { w.shared.Flush() }

func sizeOf(frames [][]byte) (n int) {
	for _, f := range frames {
		n += len(f)
	}
	return n
}

// countedConn is an upgraded connection whose bytes are counted, in both directions.
type countedConn struct {
	net.Conn
	stream *Stream
}

// CountConn returns an upgraded connection with its bytes accounted for, in both directions, until
// done is called.
func (u *Usage) CountConn(conn net.Conn, client Client, o StreamOptions) (counted net.Conn, done func()) {
	c := &countedConn{conn, u.Open(client, o)}
	return c, c.stream.Close
}

// Read implements net.Conn.
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.stream.Wrote(n)
	return n, err
}

// Write implements net.Conn.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.stream.Wrote(n)
	return n, err
}

// CloseWrite ends one direction, where the connection can.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
