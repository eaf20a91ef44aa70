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
	frames  *edgetest.FrameConn // written to with mu held, read by run
	window  int
	mu      sync.Mutex
	arrived sync.Cond
	streams map[uint32]*windowReader
	err     error
}

// windowReader is a stream of a windowClient.
type windowReader struct {
	c    *windowClient
	id   uint32
	rng  *rand.Rand
	buf  []byte
	owed int // bytes that were read, for which no window was opened
	err  error
}

func (c *windowClient) open(path string) *windowReader {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &windowReader{c: c, rng: rand.New(rand.NewPCG(1, uint64(c.frames.NextID)))} //nolint:gosec // reproducible
	r.id = c.frames.Request("GET", path, false)
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
				_ = c.frames.WriteSettingsAck()
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
