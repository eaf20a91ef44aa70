// Package writertest checks that a writer of streams delivers exactly what it accepted: the client
// receives the bytes of all accepted deliveries, in order and without a gap, including the end of
// the last one.
package writertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// waitTimeout is how long a stream may make no progress.
const waitTimeout = 2 * time.Minute

// Pipe is an open stream with its client.
type Pipe struct {
	// Writer is the writer under test. If it is an api.SharedWriter, most deliveries are queued.
	Writer api.StreamWriter
	// Client returns what the client received, without the framing of the transport, and io.EOF
	// after Writer was closed. If it is read slowly, the writer must wait.
	Client io.Reader
}

// Options describe how a writer is tested.
type Options struct {
	// Limits are the sizes at which the writer changes its behavior. Many deliveries are within 32
	// bytes of one.
	Limits []int
	// Deliveries is how many deliveries each stream gets; a soak makes 200 times as many.
	Deliveries int
	// Streams is how many streams are open at the same time; 0 means 1.
	Streams int
	// Held is set for writers that buffer bytes until they have many of them or are closed: the
	// client need not have everything before.
	Held bool
}

// Run opens streams and writes random deliveries to them. It fails the test unless each client
// receives a copy of what its writer accepted. Some clients stop reading now and then.
func Run(t *testing.T, o Options, open func(t *testing.T) Pipe) {
	t.Helper()
	n := soak.Cases(o.Deliveries, 200*o.Deliveries)
	seed := soak.Seed(t)
	var wg sync.WaitGroup
	for i := range max(o.Streams, 1) {
		p := open(t)
		s := &stream{o: o, pipe: p, moved: make(chan struct{}, 1), text: text()}
		wg.Go(func() {
			if err := s.read(rand.New(rand.NewPCG(seed, uint64(2*i)))); err != nil { //nolint:gosec // reproducible
				t.Errorf("stream %d, seed %d: client: %v", i, seed, err)
				s.fail()
			}
		})
		wg.Go(func() {
			if err := s.write(rand.New(rand.NewPCG(seed, uint64(2*i+1))), n); err != nil { //nolint:gosec // reproducible
				t.Errorf("stream %d, seed %d: writer: %v", i, seed, err)
				s.fail()
				p.Writer.Abort()
			}
		})
	}
	wg.Wait()
}

// period is the number of bytes after which the text of a stream repeats. It is prime, so that the
// loss of a whole buffer is always noticed.
const period = 1048583

// text returns what every stream carries, over and over again. It is long enough that every
// delivery is a slice of it.
var text = sync.OnceValue(func() []byte {
	b := make([]byte, period, 3*period)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	b = append(b, b...)
	return append(b, b[:period]...)
})

// largest is the size of the largest delivery.
const largest = 2 * period

// stream is a stream under test.
type stream struct {
	o    Options
	pipe Pipe
	text []byte
	// moved receives a value when the other side has made progress.
	moved chan struct{}

	mu                 sync.Mutex
	accepted, received int64
	closed, failed     bool
}

func (s *stream) fail() {
	s.mu.Lock()
	s.failed = true
	s.mu.Unlock()
}

// write makes n deliveries and closes the stream.
func (s *stream) write(rng *rand.Rand, n int) error {
	shared, _ := s.pipe.Writer.(api.SharedWriter)
	var scratch []byte
	for i := range n {
		size := s.size(rng)
		at := s.offset()
		scratch = append(scratch[:0], s.text[at:at+size]...)
		frames := split(rng, scratch)
		s.accept(size) // before the client can receive it
		taken := shared != nil && rng.IntN(4) > 0 && shared.QueueFrames(frames)
		if !taken {
			if err := s.pipe.Writer.WriteFrames(frames); err != nil {
				return fmt.Errorf("delivery %d of %d bytes: %w", i, size, err)
			}
		}
		// Overwrite the frames: a writer that retains them now sends garbage.
		for j := 0; j < len(scratch); j += 1 + len(scratch)/16 {
			scratch[j] ^= 0xff
		}
		if taken && rng.IntN(2) == 0 {
			shared.Flush()
		}
		if rng.IntN(64) == 0 && !s.o.Held {
			if shared != nil {
				shared.Flush()
			}
			if err := s.caughtUp(); err != nil {
				return fmt.Errorf("after delivery %d of %d bytes: %w", i, size, err)
			}
		}
	}
	if shared != nil {
		shared.Flush()
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.pipe.Writer.Close()
	return nil
}

// size returns the size of the next delivery.
func (s *stream) size(rng *rand.Rand) int {
	switch kind := rng.IntN(16); {
	case kind == 0 && len(s.o.Limits) > 0:
		// The sum of two limits: frames that are split in the middle of the following ones.
		return min(s.near(rng)+s.near(rng), largest)
	case kind < 6 && len(s.o.Limits) > 0:
		return s.near(rng)
	case kind == 6:
		return rng.IntN(4)
	case kind == 7:
		return rng.IntN(64 << 10)
	}
	return rng.IntN(400)
}

// near returns a size within 32 bytes of a limit.
func (s *stream) near(rng *rand.Rand) int {
	return min(max(s.o.Limits[rng.IntN(len(s.o.Limits))]+rng.IntN(65)-32, 0), largest)
}

// split cuts p into frames, some of which are empty.
func split(rng *rand.Rand, p []byte) (frames [][]byte) {
	for len(p) > 0 && len(frames) < 16 && rng.IntN(4) > 0 {
		n := rng.IntN(len(p) + 1)
		if rng.IntN(2) == 0 {
			n = min(n, rng.IntN(32))
		}
		frames, p = append(frames, p[:n:n]), p[n:]
	}
	return append(frames, p)
}

func (s *stream) offset() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.accepted % period)
}

func (s *stream) accept(size int) {
	s.mu.Lock()
	s.accepted += int64(size)
	s.mu.Unlock()
	s.signal()
}

func (s *stream) signal() {
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// caughtUp waits until the client has received everything.
func (s *stream) caughtUp() error {
	end := time.Now().Add(waitTimeout)
	for {
		s.mu.Lock()
		accepted, received, failed := s.accepted, s.received, s.failed
		s.mu.Unlock()
		switch {
		case received == accepted:
			return nil
		case failed:
			return errors.New("the client has failed")
		case time.Now().After(end):
			return fmt.Errorf("the client waits for the last %d of %d bytes", accepted-received, accepted)
		}
		time.Sleep(20 * time.Microsecond)
	}
}

// read compares what the client receives with the text.
func (s *stream) read(rng *rand.Rand) error {
	buf := make([]byte, 64<<10)
	for {
		if rng.IntN(128) == 0 { // the client stops, until more is written or the writer must be waiting
			select {
			case <-s.moved:
			case <-time.After(time.Millisecond):
			}
		}
		size := len(buf)
		if rng.IntN(4) == 0 {
			size = 1 + rng.IntN(256)
		}
		n, err := s.pipe.Client.Read(buf[:size])
		s.mu.Lock()
		at, accepted, closed := s.received, s.accepted, s.closed
		s.received += int64(n)
		s.mu.Unlock()
		if from := int(at % period); !bytes.Equal(buf[:n], s.text[from:from+n]) {
			return fmt.Errorf("%d bytes accepted, but the byte at %d differs", accepted, at+int64(commonPrefix(buf[:n], s.text[from:])))
		}
		switch {
		case at+int64(n) > accepted:
			return fmt.Errorf("received %d bytes, only %d were accepted", at+int64(n), accepted)
		case err == nil:
		case !errors.Is(err, io.EOF):
			return fmt.Errorf("after %d of %d bytes: %w", at+int64(n), accepted, err)
		case !closed || at+int64(n) != accepted:
			return fmt.Errorf("the stream ended after %d bytes, %d were accepted", at+int64(n), accepted)
		default:
			return nil
		}
	}
}

func commonPrefix(a, b []byte) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
