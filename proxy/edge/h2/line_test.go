package h2

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// lineIDs are the streams that wait for their turn.
func (h *conn) lineIDs() (ids []uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, st := range h.line {
		ids = append(ids, st.id)
	}
	return ids
}

// startWriting has each stream write as much as the next of sizes says.
func startWriting(t *testing.T, sizes ...int) (*edgetest.Server, chan *stream) {
	streams, next := make(chan *stream, 1), make(chan int, len(sizes))
	for _, size := range sizes {
		next <- size
	}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	return edgetest.Start(t, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Stream: edgetest.LateStream(func(w api.StreamWriter) {
			streams <- w.(*stream)
			wg.Go(func() { _ = w.WriteFrames([][]byte{make([]byte, <-next)}) })
		})}
	}), streams
}

// isLined waits until those streams are in line.
func isLined(t *testing.T, h *conn, want ...uint32) {
	t.Helper()
	for end := time.Now().Add(edgetest.Patience); !slices.Equal(h.lineIDs(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in line: %v, want %v", h.lineIDs(), want)
		}
	}
}

// TestHTTP2PlaceInLine: a stream that waits for its turn keeps its place when its own window opens.
func TestHTTP2PlaceInLine(t *testing.T) {
	ts, streams := startWriting(t, 2*queueLimit, 2*queueLimit, 2*queueLimit)
	c := ts.DialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	var first *stream
	var ids []uint32
	for range 3 { // the window of the connection is smaller than what one has to send
		id := c.Request("GET", "/", false)
		ids = append(ids, id)
		c.Answer(id)
		st := edgetest.Receive(t, streams, "stream")
		if first == nil {
			first = st
		}
		isLined(t, st.h, ids...)
	}
	for range 1000 {
		if err := c.WriteWindowUpdate(ids[0], 1); err != nil {
			t.Fatal(err)
		}
		if line := first.h.lineIDs(); !slices.Equal(line, ids) {
			t.Fatalf("in line: %v, want %v", line, ids)
		}
	}
	if err := c.WriteWindowUpdate(0, 1); err != nil {
		t.Fatal(err)
	}
	c.Until(func(frame http2.Frame) bool {
		data, ok := frame.(*http2.DataFrame)
		if ok && data.StreamID != ids[0] {
			t.Fatalf("stream %d had its turn first", data.StreamID)
		}
		return ok && len(data.Data()) == 1
	})
}

// TestHTTP2SmallInLine: who has little to send does not send before those in line again and
// again.
func TestHTTP2SmallInLine(t *testing.T) {
	ts, streams := startWriting(t, 2*queueLimit, 1000)
	c := ts.DialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	id := c.Request("GET", "/", false)
	c.Answer(id)
	h := edgetest.Receive(t, streams, "stream").h
	isLined(t, h, id)
	small := c.Request("GET", "/", false)
	c.Answer(small)
	edgetest.Receive(t, streams, "stream")
	isLined(t, h, id, small)
	for n := range 300 {
		_ = c.WriteWindowUpdate(0, 1)
		_ = c.WriteWindowUpdate(small, 1)
		want := id
		if n%2 == 1 {
			want = small
		}
		c.Until(func(frame http2.Frame) bool {
			data, ok := frame.(*http2.DataFrame)
			if ok && len(data.Data()) == 1 && data.StreamID != want {
				t.Fatalf("%d: stream %d had the turn of %d", n, data.StreamID, want)
			}
			return ok && len(data.Data()) == 1
		})
	}
}
