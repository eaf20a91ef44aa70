package h2

import (
	"fmt"
	"io"
	"math/rand/v2"
	"sync"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// windowClient is an HTTP/2 client that opens its windows as its streams are read, in steps of any size.
type windowClient struct {
	frames *edgetest.FrameConn // written to with mu held, read by run
	window int
	// initial is the server's window of a new stream, mayFill what is left of that of the connection.
	initial, mayFill int
	mu               sync.Mutex
	arrived          sync.Cond
	streams          map[uint32]*windowReader
	err              error
}

// windowReader is a stream of a windowClient.
type windowReader struct {
	c    *windowClient
	id   uint32
	rng  *rand.Rand
	buf  []byte
	owed int // bytes that were read, for which no window was opened
	sent int // bytes of the server's window that are used
	err  error
}

func (c *windowClient) open(path string) *windowReader {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &windowReader{c: c, rng: rand.New(rand.NewPCG(1, uint64(c.frames.NextID)))} //nolint:gosec // reproducible
	if path == "/stream" {
		r.id = c.frames.Request("GET", path, false)
	} else {
		r.id = c.frames.Tunnel(path)
	}
	c.streams[r.id] = r
	return r
}

// run takes what comes.
func (c *windowClient) run() {
	for {
		frame, err := c.frames.ReadFrame()
		c.mu.Lock()
		if err != nil {
			c.err = err
			c.arrived.Broadcast()
			c.mu.Unlock()
			return
		}
		r := c.streams[frame.Header().StreamID]
		switch f := frame.(type) {
		case *http2.DataFrame:
			r.buf = append(r.buf, f.Data()...)
			if f.StreamEnded() {
				r.err = io.EOF
			}
		case *http2.RSTStreamFrame:
			r.err = fmt.Errorf("the stream was reset: %v", f.ErrCode)
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = c.frames.WritePing(true, f.Data)
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				if size, ok := f.Value(http2.SettingInitialWindowSize); ok {
					c.initial = int(size)
				}
				_ = c.frames.WriteSettingsAck()
			}
		case *http2.WindowUpdateFrame:
			if r != nil {
				r.sent -= int(f.Increment)
			} else {
				c.mayFill += int(f.Increment)
			}
		}
		c.arrived.Broadcast()
		c.mu.Unlock()
	}
}

// Read implements io.Reader.
func (r *windowReader) Read(p []byte) (int, error) {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(r.buf) == 0 {
		switch {
		case r.err != nil:
			return 0, r.err
		case c.err != nil:
			return 0, c.err
		case r.owed > 0:
			r.open(r.owed)
		default:
			c.arrived.Wait()
		}
	}
	n := copy(p, r.buf)
	r.buf = r.buf[:copy(r.buf, r.buf[n:])]
	r.owed += n
	if r.owed > c.window/4 || r.rng.IntN(8) == 0 {
		r.open(r.rng.IntN(r.owed + 1))
	}
	return n, nil
}

// open opens the windows of the stream and of the connection for n bytes, in up to three steps. c.mu is held.
func (r *windowReader) open(n int) {
	for step := 1; n > 0; step++ {
		more := n
		if step < 3 {
			more = 1 + r.rng.IntN(min(n, 1<<r.rng.IntN(20)))
		}
		_ = r.c.frames.WriteWindowUpdate(0, uint32(more))    //nolint:gosec // positive
		_ = r.c.frames.WriteWindowUpdate(r.id, uint32(more)) //nolint:gosec // positive
		r.owed -= more
		n -= more
	}
}

// Write implements io.Writer. It waits for the windows of the server.
func (r *windowReader) Write(p []byte) (n int, err error) {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p) > 0 && err == nil {
		k := min(len(p), frameSize, c.mayFill, c.initial-r.sent)
		switch {
		case c.err != nil:
			return n, c.err
		case r.err != nil:
			return n, r.err
		case k <= 0:
			c.arrived.Wait()
		default:
			err = c.frames.WriteData(r.id, false, p[:k])
			c.mayFill, r.sent = c.mayFill-k, r.sent+k
			n, p = n+k, p[k:]
		}
	}
	return n, err
}

// Close ends the sending side.
func (r *windowReader) Close() error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	return r.c.frames.WriteData(r.id, true, nil)
}
