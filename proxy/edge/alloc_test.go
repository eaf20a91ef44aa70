package edge_test

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// TestAllocations bounds what a get over a kept connection allocates: the request
// and its text, and the response that the handler makes.
func TestAllocations(t *testing.T) {
	body := make([]byte, 6<<10)
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Header: edgetest.ResponseHeader, Body: body}
	})
	nc, err := net.Dial("tcp", ts.Sidecar)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	request, buf := []byte(edgetest.ClientRequest), make([]byte, 64<<10)
	size := 0
	get := func() {
		_, _ = nc.Write(request)
		for n := 0; n < size || n == 0; {
			m, err := nc.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			n += m
			if size == 0 && m > len(body) {
				size = n // it comes in one write
			}
		}
	}
	get()
	if got := testing.AllocsPerRun(1000, get); got > 3 && !raceEnabled {
		t.Errorf("%v allocations per request", got)
	}
}

// TestStreamAllocations bounds what a write to a watch allocates: nothing.
func TestStreamAllocations(t *testing.T) {
	writers := make(chan api.StreamWriter, 1)
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Stream: &edgetest.StreamFunc{OnStart: func(w api.StreamWriter) { writers <- w }}}
	})
	c := ts.Dial()
	c.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	w := edgetest.Receive(t, writers, "writer")
	c.Head("GET")
	frames := [][]byte{make([]byte, 1000), make([]byte, 1000)}
	buf := make([]byte, len("7d0\r\n\r\n")+2000)
	if got := testing.AllocsPerRun(1000, func() {
		if err := w.WriteFrames(frames); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c.Br, buf); err != nil {
			t.Fatal(err)
		}
	}); got > 0 && !raceEnabled {
		t.Errorf("%v allocations per write", got)
	}
}
