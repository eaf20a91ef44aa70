//go:build unix

package edge_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// TestDescriptorsAreReserved: clients get half of the files that the process may open,
// more are closed at once, and the rest stays for others; one line is logged.
func TestDescriptorsAreReserved(t *testing.T) {
	const files = 80
	s := startMemoryServerWith(t, files)
	defer s.stop()
	// open makes a connection and reports whether it is served.
	open := func() (*edgetest.RawConn, bool) {
		nc, err := net.Dial("tcp", s.plain)
		if err != nil {
			t.Fatal(err)
		}
		c := edgetest.NewRawConn(t, nc)
		if _, err := io.WriteString(c, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return c, false
		}
		if _, err := c.Br.Peek(1); err != nil {
			return c, false
		}
		if _, body := c.Response("GET"); body != "opened" {
			t.Errorf("no file can be opened: %s", body)
		}
		return c, true
	}
	var served []*edgetest.RawConn
	for range 2 * files {
		if c, ok := open(); ok {
			served = append(served, c)
		}
	}
	if len(served) != files/2 {
		t.Errorf("%d connections are served, want %d", len(served), files/2)
	}
	_ = served[0].Close()
	for end := time.Now().Add(edgetest.Timeout); ; {
		if _, ok := open(); ok {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no connection is taken in after one has ended")
		}
	}
	c := served[1]
	c.Send("GET /log HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, log := c.Response("GET"); strings.Count(log, "refused") != 1 || strings.Count(log, "\n") != 1 {
		t.Errorf("logged: %s", log)
	}
}
