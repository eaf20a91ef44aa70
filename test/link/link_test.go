package link

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"
)

// TestLink checks each condition of a link, because other tests rely on it.
func TestLink(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = echo.Close() }()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	l, err := Start(echo.Addr().String())
	must(t, err)
	defer l.Close()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.address)
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	// expect sends a word and returns what is echoed within a time.
	expect := func(conn net.Conn, word string, within time.Duration) string {
		_, _ = io.WriteString(conn, word)
		_ = conn.SetReadDeadline(time.Now().Add(within))
		got := make([]byte, len(word))
		n, _ := io.ReadFull(conn, got)
		return string(got[:n])
	}
	const long, short = 10 * time.Second, 50 * time.Millisecond
	first := dial()
	if got := expect(first, "hello", long); got != "hello" {
		t.Fatalf("%q came back", got)
	}
	must(t, l.Set(Condition{HoldDown: true}))
	if got := expect(first, "held", short); got != "" {
		t.Errorf("%q came through a link that holds", got)
	}
	must(t, l.Set(Condition{}))
	if got := expect(first, "", long) + expect(first, "x", long); got != "h" {
		t.Errorf("%q came first after the hold", got)
	}
	must(t, l.Set(Condition{HoldUp: true, HoldDown: true, Lose: true}))
	second := dial()
	if got := expect(second, "lost", short); got != "" {
		t.Errorf("%q came through a link that loses bytes", got)
	}
	must(t, l.Set(Condition{}))
	if got := expect(second, "lost", short); got != "" {
		t.Errorf("%q came through a connection that has lost bytes", got)
	}
	third := dial()
	must(t, l.Set(Condition{Corrupt: true}))
	if got := expect(third, "word", long); got == "word" || len(got) != 4 {
		t.Errorf("a link that corrupts delivered %q", got)
	}
	must(t, l.Set(Condition{Reject: true}))
	if got := expect(third, "word", long); got != "" {
		t.Errorf("%q came over a connection that was closed", got)
	}
	if conn, err := net.Dial("tcp", l.address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection to a link that refuses: %v, %v", conn, err)
	}
	must(t, l.Set(Condition{Rate: chunk * 4}))
	began := time.Now()
	if got := expect(dial(), string(slices.Repeat([]byte("r"), 2*chunk)), long); len(got) != 2*chunk {
		t.Errorf("%d bytes came through slowly", len(got))
	}
	if took := time.Since(began); took < time.Second/2 {
		t.Errorf("half a second's bytes took %s", took)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
