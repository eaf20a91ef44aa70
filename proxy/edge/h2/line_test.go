package h2

import (
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"

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

// TestHTTP2PlaceInLine: a stream that waits for its turn keeps its place when the deadline
// of its write is set again, or its own window opens.
func TestHTTP2PlaceInLine(t *testing.T) {
	tunnels := make(chan *upgradedStream, 1)
	ts, _ := edgetest.StartUpgrades(t, func(nc net.Conn) {
		tunnels <- nc.(*upgradedStream)
		_, _ = nc.Write(make([]byte, 2*queueLimit))
	})
	c := ts.DialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	var first *upgradedStream
	var ids []uint32
	for range 3 { // the window of the connection is smaller than what one has to send
		id := c.Tunnel("/")
		ids = append(ids, id)
		c.Respond(id)
		u := edgetest.Receive(t, tunnels, "tunnel")
		if first == nil {
			first = u
		}
		for end := time.Now().Add(edgetest.Timeout); !slices.Equal(u.st.h.lineIDs(), ids); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("in line: %v, want %v", u.st.h.lineIDs(), ids)
			}
		}
	}
	for n := range 1000 {
		if n%2 == 0 {
			_ = first.SetWriteDeadline(time.Now().Add(time.Hour))
		} else if err := c.WriteWindowUpdate(ids[0], 1); err != nil {
			t.Fatal(err)
		}
		if line := first.st.h.lineIDs(); !slices.Equal(line, ids) {
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
	tunnels, sizes := make(chan *upgradedStream, 1), make(chan int, 2)
	sizes <- 2 * queueLimit
	sizes <- 1000
	ts, _ := edgetest.StartUpgrades(t, func(nc net.Conn) {
		tunnels <- nc.(*upgradedStream)
		_, _ = nc.Write(make([]byte, <-sizes))
	})
	c := ts.DialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	id := c.Tunnel("/")
	c.Respond(id)
	u := edgetest.Receive(t, tunnels, "tunnel")
	h := u.st.h
	lined := func(want ...uint32) {
		t.Helper()
		for end := time.Now().Add(edgetest.Timeout); !slices.Equal(h.lineIDs(), want); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("in line: %v, want %v", h.lineIDs(), want)
			}
		}
	}
	lined(id)
	small := c.Tunnel("/")
	c.Respond(small)
	edgetest.Receive(t, tunnels, "tunnel")
	lined(id, small)
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
