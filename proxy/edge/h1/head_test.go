package h1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// byteConn is a connection that brings one byte with each read.
type byteConn struct {
	net.Conn
	left   string
	reads  int
	atOnce bool
}

func (c *byteConn) Read(p []byte) (int, error) {
	if c.left == "" {
		return 0, io.EOF
	}
	c.reads++
	if !c.atOnce {
		p = p[:1]
	}
	n := copy(p, c.left)
	c.left = c.left[n:]
	return n, nil
}

func (*byteConn) SetReadDeadline(time.Time) error { return nil }
func (*byteConn) RemoteAddr() net.Addr            { return nil }

// headOf reads a head that comes byte by byte; status is what readHead says.
func headOf(t testing.TB, text string) (h *fasthttp.RequestHeader, status int) {
	t.Helper()
	c := connOf(t, &byteConn{left: text})
	h = &fasthttp.RequestHeader{}
	if !c.In.WaitFor(time.Minute) {
		return h, 0
	}
	return h, c.readHead(h)
}

func TestHeadByteByByte(t *testing.T) {
	const line = "GET /a HTTP/1.1\r\n"
	for text, want := range map[string]int{
		line + "Host: x\r\n\r\n":                                           -1,
		"\r\n\r\n\n\r\n" + line + "Host: x\r\n\r\n":                        -1,
		line + "Host: x\r\nA: " + strings.Repeat("b", 60<<10) + "\r\n\r\n": -1,
		line + "Host: x\r\nA: " + strings.Repeat("b", 70<<10) + "\r\n\r\n": 431,
		line + "Host: x\r\n\n" + strings.Repeat("b", 100):                  400,
		line + "Host: x\n\r\n":                                             400,
		line + "Host: x\n\n":                                               400,
		line + "Host: x\r\n":                                               0,
		"":                                                                 0,
		"\r\n\r\n":                                                         0,
		"\r" + line + "Host: x\r\n\r\n":                                    400,
		"\r":                                                               0,
	} {
		if _, got := headOf(t, text); got != want {
			t.Errorf("%.60q: %d, want %d", text, got, want)
		}
	}
}

// TestLineFeedsAtOnce checks that lines that end in a line feed alone are rejected if the next request is
// there already.
func TestLineFeedsAtOnce(t *testing.T) {
	c := connOf(t, &byteConn{left: "GET / HTTP/1.0\n\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n", atOnce: true})
	if !c.In.WaitFor(time.Minute) {
		t.Fatal("no request")
	}
	if status := c.readHead(&fasthttp.RequestHeader{}); status != 400 {
		t.Errorf("%d", status)
	}
}

// FuzzHeadByteByByte: however a head comes, it is what the parser makes of it at once.
func FuzzHeadByteByByte(f *testing.F) {
	f.Add("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	f.Add("\r\nPOST /a HTTP/1.0\r\nA: b\r\n c\r\n\r\nbody\r\n\r\n")
	f.Add("GET / HTTP/1.1\nHost: x\n\n")
	f.Add("\r0 / HTTP/0.0\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		h, status := headOf(t, text)
		if status >= 0 {
			return // refused: nothing is read in two ways
		}
		var want fasthttp.RequestHeader
		if i := strings.Index(text, "\r\n\r\n"); i < 0 {
			t.Fatalf("%q has no end", text)
		}
		if err := want.Read(bufio.NewReaderSize(strings.NewReader(text), 64<<10)); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if !bytes.Equal(h.RawHeaders(), want.RawHeaders()) || !bytes.Equal(h.RequestURI(), want.RequestURI()) || !bytes.Equal(h.Method(), want.Method()) {
			t.Errorf("%q is another request at once", text)
		}
	})
}

// BenchmarkHeadByteByByte is 60 KiB in 60,000 reads, as TLS records of one byte bring
// them.
func BenchmarkHeadByteByByte(b *testing.B) {
	text := longHead()
	for range b.N {
		if _, status := headOf(b, text); status != -1 {
			b.Fatal(status)
		}
	}
}

// TestHeadByteByByteIsLinear: such a head took more than six seconds of processor time.
func TestHeadByteByByteIsLinear(t *testing.T) {
	began := edgetest.CPU()
	if _, status := headOf(t, longHead()); status != -1 {
		t.Fatal(status)
	}
	if took := edgetest.CPU() - began; took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}

// longHead has 60 KiB of short lines.
func longHead() string {
	var text strings.Builder
	text.WriteString("GET / HTTP/1.1\r\nHost: x\r\n")
	for i := 0; text.Len() < 60<<10; i++ {
		fmt.Fprintf(&text, "N%d: v\r\n", i)
	}
	text.WriteString("\r\n")
	return text.String()
}
