package edge_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// stalledWrites writes without end and knows which writes stand still.
type stalledWrites struct {
	mu    sync.Mutex
	begun map[any]time.Time // of each write that is under way
}

// count is how many writes have stood still for a moment.
func (s *stalledWrites) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, begun := range s.begun {
		if time.Since(begun) > 200*time.Millisecond {
			n++
		}
	}
	return n
}

func (s *stalledWrites) write(key any, f func() error) error {
	s.mu.Lock()
	if s.begun == nil {
		s.begun = make(map[any]time.Time)
	}
	s.begun[key] = time.Now()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.begun, key)
		s.mu.Unlock()
	}()
	return f()
}

// stream writes as a watch that has much to catch up with.
func (s *stalledWrites) stream(w api.StreamWriter) {
	frames := make([][]byte, 256)
	for i := range frames {
		frames[i] = stalledPiece
	}
	for s.write(w, func() error { return w.WriteFrames(frames) }) == nil {
	}
}

func (s *stalledWrites) list(w io.Writer) (n int64, err error) {
	for err == nil {
		err = s.write(w, func() error {
			m, err := w.Write(stalledPiece)
			n += int64(m)
			return err
		})
	}
	return n, err
}

var stalledPiece = make([]byte, 6<<10)

// TestStalledClients: what clients that stop reading cost is bounded over all of them,
// 120 MiB for the first thousand (30 of them the connections), 60 KiB for each that follows.
func TestStalledClients(t *testing.T) {
	for _, tc := range []struct {
		name    string
		open    func(*testing.T, *memoryServerProcess, int)
		clients int
		most    int // MiB
	}{
		{"watches over TLS", stallTLS("/stall"), 1000, 120},
		{"more watches over TLS", stallTLS("/stall"), 2000, 190},
		{"watches over HTTP/2", stallStreams, 1000, 120},
		{"lists over TLS", stallTLS("/list"), 2000, 170},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if raceEnabled {
				tc.clients /= soak.Cases(32, 8) // handshakes take long, and the bounds are the same
			}
			server := startMemoryServer(t)
			defer server.stop()
			before := server.memory(t, "?go")
			tc.open(t, server, tc.clients)
			got := (server.memory(t, "?go") - before) >> 20
			t.Logf("%d stalled clients cost %d MiB", tc.clients, got)
			if got > tc.most {
				t.Errorf("%d stalled clients cost %d MiB, more than %d", tc.clients, got, tc.most)
			}
		})
	}
}

// TestShortOfBuffers: then a watch whose client does not read ends at once, and one
// whose client reads goes on.
func TestShortOfBuffers(t *testing.T) {
	ts, streams := edgetest.StartStreams(t)
	ts.Buffers.Hold(ts.Buffers.Anonymous(), 2*edge.BufferBudget)
	defer ts.Buffers.Hold(ts.Buffers.Anonymous(), -2*edge.BufferBudget)
	// Large only once: the system may take a while to notice that all was read.
	frame := [][]byte{make([]byte, 100<<10), make([]byte, 10)}
	edgetest.Over(t, ts, func(t *testing.T, c *http.Client, url string) {
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		s := edgetest.Receive(t, streams, "stream")
		w := edgetest.Receive(t, s.Writer, "writer")
		frames, size := frame, int64(100<<10+10)
		for range 20 {
			if err := w.WriteFrames(frames); err != nil {
				t.Fatalf("a client that reads: %v", err)
			}
			if _, err := io.CopyN(io.Discard, resp.Body, size); err != nil {
				t.Fatal(err)
			}
			frames, size = frame[1:], 10
		}
		w.Close()
		s.Over(t)
	})
	if runtime.GOOS != "linux" {
		return
	}
	c := ts.DialTLS()
	c.Send("GET /stall HTTP/1.1\r\nHost: x\r\n\r\n")
	s := edgetest.Receive(t, streams, "stream")
	w := edgetest.Receive(t, s.Writer, "writer")
	failed := make(chan error, 1)
	go func() {
		for {
			if err := w.WriteFrames(frame[1:]); err != nil {
				failed <- err
				return
			}
		}
	}()
	if err := edgetest.Receive(t, failed, "error"); !errors.Is(err, edge.ErrSlow) {
		t.Errorf("a client that does not: %v", err)
	}
	s.Over(t)
}

// await waits until n writes stand still, or are over because memory is short.
func (s *memoryServerProcess) await(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(edgetest.Timeout); s.get(t, "/stalled") < n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d writes stand still", s.get(t, "/stalled"), n)
		}
	}
}

// stallTLS opens connections that send one request and never read.
func stallTLS(path string) func(*testing.T, *memoryServerProcess, int) {
	return func(t *testing.T, s *memoryServerProcess, n int) {
		dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) {
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
			})
		}}
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 8 {
			wg.Go(func() {
				for range n / 8 {
					nc, err := tls.DialWithDialer(&dialer, "tcp", s.secure, s.tls)
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.WriteString(nc, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
					mu.Lock()
					s.conns = append(s.conns, nc)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		s.await(t, min(n, 900)/8*8)
	}
}

// stallStreams opens watches over HTTP/2 whose windows are never opened.
func stallStreams(t *testing.T, s *memoryServerProcess, n int) {
	for range max(1, n/defaults.MaxStreams) {
		cfg := s.tls.Clone()
		cfg.NextProtos = []string{"h2"}
		nc, err := tls.Dial("tcp", s.secure, cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.conns = append(s.conns, nc)
		c := edgetest.NewFrameConn(t, nc, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 16})
		for range defaults.MaxStreams {
			c.Request("GET", "/stall", false)
		}
	}
	s.await(t, max(1, n/defaults.MaxStreams)*defaults.MaxStreams)
}
