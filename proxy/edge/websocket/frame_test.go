package websocket

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
)

func TestHeads(t *testing.T) {
	for size, want := range map[int]string{
		0: "\x81\x00", 125: "\x81\x7d", 126: "\x81\x7e\x00\x7e", 65535: "\x81\x7e\xff\xff", 65536: "\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00",
	} {
		if got := AppendTextHead([]byte("-"), size); string(got) != "-"+want {
			t.Errorf("%d bytes: %q", size, got)
		}
	}
	if got := AppendBinaryHead(nil, 5); string(got) != "\x82\x05" {
		t.Errorf("binary: %q", got)
	}
}

// frame is a client's, with a mask.
func frame(first byte, payload string) string {
	const mask = "\x01\x02\x03\x80"
	b := appendHead(nil, 0, len(payload))
	b[0] = first
	b[1] |= masked
	b = append(b, mask...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i%4])
	}
	return string(b)
}

// read is what the reader makes of a client's bytes that come in pieces of a size.
func read(input []byte, size int) (pings []string, code uint16) {
	r := reader{ping: func(p []byte) { pings = append(pings, string(p)) }}
	for piece := range slices.Chunk(input, size) {
		if code = r.feed(piece); code != 0 {
			break
		}
	}
	return pings, code
}

// errNoMore is the end of a client's bytes, which is not that of its connection.
var errNoMore = errors.New("no more")

// recordedConn is a connection whose client has sent all that it sends.
type recordedConn struct {
	net.Conn // nil
	in       *bytes.Reader
	out      bytes.Buffer
}

func (c *recordedConn) Read(p []byte) (int, error) {
	if c.in.Len() == 0 {
		return 0, errNoMore
	}
	return c.in.Read(p)
}
func (c *recordedConn) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c *recordedConn) Close() error                { return nil }

type hijacked struct {
	http.ResponseWriter // nil
	conn                *recordedConn
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// upstreamRead is what kube-apiserver's WebSockets make of a client's bytes.
func upstreamRead(t *testing.T, input []byte) (pings []string, code uint16) {
	t.Helper()
	conn := &recordedConn{in: bytes.NewReader(input)}
	var ended error
	server := websocket.Server{Handler: func(ws *websocket.Conn) {
		conn.out.Reset()
		for data := []byte(nil); ended == nil; {
			ended = websocket.Message.Receive(ws, &data)
		}
	}}
	r, err := http.NewRequest(http.MethodGet, "https://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"a"}, "Sec-Websocket-Version": {"13"}}
	server.ServeHTTP(hijacked{conn: conn}, r)
	for out := conn.out.Bytes(); len(out) > 0; {
		opcode, size := out[0]&0xf, int(out[1])
		if opcode == opClose {
			code = binary.BigEndian.Uint16(out[2:])
		} else {
			pings = append(pings, string(out[2:2+size]))
		}
		out = out[2+size:]
	}
	if code == 0 && !errors.Is(ended, errNoMore) {
		code = closeNormal // WatchServer.HandleWS closes the connection
	}
	return pings, code
}

// checkReader compares the reader with kube-apiserver's, however the bytes are cut.
func checkReader(t *testing.T, input []byte) {
	t.Helper()
	want, wantCode := upstreamRead(t, input)
	for _, size := range []int{1, 3, len(input) + 1} {
		got, code := read(input, size)
		// A ping of more than a pong carries is answered there before all of it has come.
		if code == 0 && len(want) == len(got)+1 && len(want[len(got)]) == maxControl {
			want = want[:len(got)]
		}
		if !slices.Equal(got, want) || code != wantCode {
			t.Fatalf("%q in pieces of %d: pings %q, closed with %d; kube-apiserver: %q, %d", input, size, got, code, want, wantCode)
		}
	}
}

var clientsBytes = []string{
	"",
	frame(0x89, "hello") + frame(0x89, ""),
	frame(0x8a, "pong") + frame(0x81, "text") + frame(0x82, strings.Repeat("x", 70_000)) + frame(0x89, "after"),
	frame(0x89, strings.Repeat("p", 125)) + frame(0x89, strings.Repeat("q", 126)) + frame(0x89, strings.Repeat("r", 1000)),
	frame(0x01, "a") + frame(0x89, "between") + frame(0x00, "b") + frame(0x80, "c"),
	frame(0xf1, "reserved bits") + frame(0x83, "reserved opcode") + frame(0x8f, "") + frame(0x09, "a ping in parts"),
	frame(0x88, "\x03\xe8") + frame(0x89, "too late"),
	frame(0x88, ""),
	"\x81\x02hi",
	"\x89\x00",
	"\x88\x00",
	"\x82\xff\x00\x00\x00\x00\x02\x00\x00\x00abcd", // as large as may be
	"\x82\xff\x00\x00\x00\x00\x02\x00\x00\x01abcd", // a byte more
	"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xffabcd",
	"\x82\xff\x80\x00\x00\x00\x00\x00\x00\x02abcdxy" + frame(0x89, "the highest bit is not looked at"),
	"\x89\xff\x00\x00\x00\x00\x02\x00\x00\x01abcd" + strings.Repeat("x", 300),
	frame(0x89, "cut off")[:9],
}

func TestReader(t *testing.T) {
	for _, input := range clientsBytes {
		checkReader(t, []byte(input))
	}
}

func FuzzReader(f *testing.F) {
	for _, input := range clientsBytes {
		f.Add([]byte(input[:min(len(input), 2000)]))
	}
	f.Fuzz(func(t *testing.T, input []byte) { checkReader(t, input) })
}

var _ io.ReadWriteCloser = (*recordedConn)(nil)
