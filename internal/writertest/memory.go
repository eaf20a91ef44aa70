package writertest

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync"
)

// memoryLimit is how many bytes a stream in memory buffers before its writer waits, and the most
// that it queues.
const memoryLimit = 64 << 10

// Memory returns a stream in memory, as the end of a chain of writers under test. It is an
// api.SharedWriter that takes every second delivery, and buffers little.
func Memory() Pipe {
	m := &memory{rng: rand.New(rand.NewPCG(1, 0))} //nolint:gosec // reproducible
	m.changed.L = &m.mu
	return Pipe{Writer: m, Client: m}
}

type memory struct {
	mu      sync.Mutex
	changed sync.Cond
	rng     *rand.Rand
	buf     []byte
	end     error
}

var errClosed = errors.New("the stream is closed")

// WriteFrames implements api.StreamWriter.
func (m *memory) WriteFrames(frames [][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range frames {
		for {
			if m.end != nil {
				return errClosed
			}
			n := min(len(f), memoryLimit-len(m.buf))
			m.buf = append(m.buf, f[:n]...)
			m.changed.Broadcast()
			if f = f[n:]; len(f) == 0 {
				break
			}
			m.changed.Wait()
		}
	}
	return nil
}

// QueueFrames implements api.SharedWriter.
func (m *memory) QueueFrames(frames [][]byte) (taken bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := 0
	for _, f := range frames {
		size += len(f)
	}
	if m.end != nil || len(m.buf)+size > memoryLimit || m.rng.IntN(2) == 0 {
		return false
	}
	for _, f := range frames {
		m.buf = append(m.buf, f...)
	}
	return true // Flush wakes the client
}

// Flush implements api.SharedWriter.
func (m *memory) Flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed.Broadcast()
}

// Close implements api.StreamWriter.
func (m *memory) Close() { m.endWith(io.EOF) }

// Abort implements api.StreamWriter.
func (m *memory) Abort() { m.endWith(io.ErrUnexpectedEOF) }

func (m *memory) endWith(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.end == nil {
		m.end = err
	}
	m.changed.Broadcast()
}

// Read implements io.Reader.
func (m *memory) Read(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.buf) == 0 {
		if m.end != nil {
			return 0, m.end
		}
		m.changed.Wait()
	}
	n := copy(p, m.buf)
	m.buf = m.buf[:copy(m.buf, m.buf[n:])]
	m.changed.Broadcast()
	return n, nil
}
