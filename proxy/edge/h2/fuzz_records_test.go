package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

// cuttingConn sends what is written in segments of the sizes of cuts, again and again.
type cuttingConn struct {
	net.Conn
	cuts []byte
	at   int
}

func (c *cuttingConn) next() int {
	if len(c.cuts) == 0 {
		return 1 << 20
	}
	n := int(c.cuts[c.at%len(c.cuts)])
	c.at++
	return n*n + 1
}

func (c *cuttingConn) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = c.Conn.Write(p[n:min(len(p), n+c.next())])
		n += m
		runtime.Gosched()
	}
	return n, err
}

// FuzzRecords sends requests in TLS records of any size, and these in segments of any size: all are
// answered, none twice, and none waits for what comes behind it.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add([]byte{0}, []byte{})
	f.Add([]byte{3, 0}, []byte{1})
	f.Add([]byte{0, 1, 2, 3, 20}, []byte{2, 4, 30})
	f.Add([]byte{100}, []byte{0, 0, 0, 0, 0, 3})
	ts := edgetest.Start(f, func(ctx context.Context, r *api.Request) *api.Response {
		if r.Body != nil {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return edgetest.Text(err.Error())
			}
			return edgetest.Text(fmt.Sprint(r.Path, len(body)))
		}
		if r.RawQuery != "" {
			_ = ctx.Done()
		}
		return edgetest.Text(r.Path)
	})
	f.Fuzz(func(t *testing.T, records, segments []byte) {
		if len(records) > 20 || len(segments) > 20 {
			return
		}
		raw, err := net.Dial("tcp", ts.Secure)
		if err != nil {
			t.Fatal(err)
		}
		cutting := &cuttingConn{Conn: raw}
		conn := tls.Client(cutting, &tls.Config{RootCAs: ts.Roots, ServerName: "127.0.0.1", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12, MaxVersion: uint16(tls.VersionTLS12 + len(records)%2), DynamicRecordSizingDisabled: true})
		defer conn.Close()
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(edgetest.Timeout))
		cutting.cuts = segments

		plain := &memoryConn{}
		c := edgetest.NewFrameConn(t, plain)
		want := map[uint32]string{}
		for i := range 12 {
			path := fmt.Sprintf("/%d", i)
			switch i % 4 {
			case 2:
				id := c.Request("POST", path, true)
				want[id] = fmt.Sprint(path, 300*i)
				_ = c.WriteData(id, false, make([]byte, 100*i))
				_ = c.WriteData(id, true, make([]byte, 200*i))
			case 3:
				want[c.Request("GET", path+"?waits", false)] = path
			default:
				want[c.Request("GET", path, false)] = path
			}
		}
		sizes := cuttingConn{cuts: records}
		go func() {
			for p := plain.Bytes(); len(p) > 0; {
				n := min(len(p), sizes.next(), edge.RecordSize)
				if _, err := conn.Write(p[:n]); err != nil {
					t.Error(err)
					return
				}
				p = p[n:]
			}
		}()
		got, ended := map[uint32]string{}, 0
		for fr := http2.NewFramer(nil, conn); ended < len(want); {
			frame, err := fr.ReadFrame()
			if err != nil {
				t.Fatalf("%v after %d answers: %v", err, ended, got)
			}
			if data, ok := frame.(*http2.DataFrame); ok {
				got[data.StreamID] += string(data.Data())
				if data.StreamEnded() {
					ended++
				}
			}
		}
		for id, text := range want {
			if got[id] != text {
				t.Errorf("stream %d: %q, want %q", id, got[id], text)
			}
		}
	})
}

// memoryConn keeps what is written.
type memoryConn struct {
	net.Conn
	bytes.Buffer
}

func (c *memoryConn) Read(p []byte) (int, error)  { return c.Buffer.Read(p) }
func (c *memoryConn) Write(p []byte) (int, error) { return c.Buffer.Write(p) }
func (c *memoryConn) SetDeadline(time.Time) error { return nil }
