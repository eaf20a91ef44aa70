package bench

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// responding starts a server that responds to every request with the same bytes, written in pieces
// of the given size.
func responding(t *testing.T, response string, piece int) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4096)
			for {
				if _, err := nc.Read(buf); err != nil {
					break
				}
				for rest := response; rest != ""; {
					n := min(piece, len(rest))
					if _, err := nc.Write([]byte(rest[:n])); err != nil {
						break
					}
					rest = rest[n:]
				}
			}
			_ = nc.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return &server{name: "test", addr: l.Addr().String()}
}

func TestClient(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for name, test := range map[string]struct {
		response string
		want     response
		body     string
	}{
		"length": {"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nETag: \"e\"\r\nContent-Type: a/b\r\n\r\nhello",
			response{status: 200, bytes: 5, length: 5, etag: `"e"`, contentType: "a/b"}, "hello"},
		"chunks": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n2710\r\n" + long + "\r\n0\r\n\r\n",
			response{status: 200, bytes: 10_005, length: -1, chunked: true}, "hello" + long},
		"not modified": {"HTTP/1.1 304 Not Modified\r\nETag: \"e\"\r\n\r\n", response{status: 304, length: -1, etag: `"e"`}, ""},
		"empty":        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", response{status: 200, length: 0}, ""},
	} {
		for _, piece := range []int{1 << 20, 700} {
			t.Run(fmt.Sprint(name, piece), func(t *testing.T) {
				s := responding(t, test.response, piece)
				c, err := dial(t.Context(), s, 512)
				if err != nil {
					t.Fatal(err)
				}
				defer c.close()
				for range 2 { // the second would see anything left over from the first
					var body strings.Builder
					c.keep = &body
					got, err := c.do(s.encode(requestSpec{path: "/"}))
					if err != nil {
						t.Fatal(err)
					}
					if head := string(got.head); head != test.body[:min(len(test.body), headBytes)] {
						t.Errorf("head of %d bytes", len(head))
					}
					got.head = nil
					if fmt.Sprint(got) != fmt.Sprint(test.want) || body.String() != test.body {
						t.Errorf("got %+v and %d bytes, want %+v", got, body.Len(), test.want)
					}
				}
			})
		}
	}
}

// TestEventsAreCounted checks that events are counted wherever reads split the stream.
func TestEventsAreCounted(t *testing.T) {
	const stream = "5\r\n{\"a\"}\n\r\na\r\n{\"b\":1}\n{}\n\r\n"
	for first := 1; first < len(stream); first++ {
		w := &watchers{}
		one := &watcher{}
		w.events(one, []byte(stream[:first]))
		w.events(one, []byte(stream[first:]))
		if w.delivered.Load() != 3 || one.received != 3 {
			t.Errorf("cut after %d: %d", first, w.delivered.Load())
		}
	}
	w := &watchers{}
	one := &watcher{}
	for i := range len(stream) {
		w.events(one, []byte(stream[i:i+1]))
	}
	if w.delivered.Load() != 3 {
		t.Errorf("byte by byte: %d", w.delivered.Load())
	}
}

// TestEventsInWebSocketsAreCounted checks that every WebSocket message counts as one event,
// whatever its size and number of frames.
func TestEventsInWebSocketsAreCounted(t *testing.T) {
	var stream []byte
	for _, n := range []int{5, 125, 126, 5000, 70_000} {
		stream = append(socketHead(stream, n), strings.Repeat("x", n)...)
	}
	stream = append(stream, 0x01, 1, 'a', 0x89, 1, 'p', 0x80, 1, 'b') // two fragments with a ping between them
	s := responding(t, string(stream)+"\x88\x00", 700)
	c, err := dial(t.Context(), s, 512)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	w := &watchers{}
	one := &watcher{}
	if _, err := c.nc.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	(&socketConn{c, w, one}).read()
	if w.delivered.Load() != 6 || w.closed.Load() != 1 {
		t.Errorf("%d events, %d ended", w.delivered.Load(), w.closed.Load())
	}
}
