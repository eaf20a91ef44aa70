package h1

import (
	"io"
	"net"
	"testing"

	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// FuzzConnection sends anything to a server, which answers or not but goes on.
func FuzzConnection(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nT: x\r\n\r\n"))
	for _, path := range []string{"u", "d"} {
		f.Add([]byte("GET /" + path + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello, that is enough"))
	}
	ts := edgetest.Start(f, edgetest.Fuzzed)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := net.Dial("tcp", ts.Sidecar)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			_, _ = c.Write(data)
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(io.Discard, c)
		if log := ts.Log.String(); log != "" {
			t.Fatalf("logged: %s", log)
		}
	})
}
