package edge_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// TestReadyBody sees that a body that waits for nothing leaves in few writes, and any other at once.
func TestReadyBody(t *testing.T) {
	// In time of its own: a pause of the machine is no slow client.
	bubble.Test(t, testReadyBody)
}

func testReadyBody(t *testing.T) {
	const pieces, size = 100, 10_000
	var resp *api.Response
	ts, dial := edgetest.ServeInBubble(t, func(context.Context, *api.Request) *api.Response { return resp })
	nc := dial("http/1.1")
	responses := bufio.NewReader(nc)
	for _, tc := range []struct {
		ready, known bool
		most         int32
	}{{true, true, 3}, {true, false, 3}, {false, true, 40}, {false, false, 2*pieces + 2}} {
		resp = &api.Response{Status: 200, Length: -1, Ready: tc.ready, BodyTo: edgetest.WriterTo(func(w io.Writer) (int64, error) {
			for range pieces {
				if _, err := w.Write(make([]byte, size)); err != nil {
					return 0, err
				}
			}
			return pieces * size, nil
		})}
		if tc.known {
			resp.Length = pieces * size
		}
		done := make(chan error, 1)
		resp.Done = func(n int64, err error) {
			if n != pieces*size {
				err = fmt.Errorf("%d bytes: %w", n, err)
			}
			done <- err
		}
		before := ts.Writes.Load()
		if _, err := io.WriteString(nc, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		got, err := http.ReadResponse(responses, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, got.Body)
		if writes := ts.Writes.Load() - before; err != nil || <-done != nil || writes > tc.most || !tc.ready && writes < 10 {
			t.Errorf("%+v: %d writes, %v", tc, writes, err)
		}
	}
}
