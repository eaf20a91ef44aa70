package edge

import (
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// line are the streams that wait for their turn.
func (h *http2Conn) line() (ids []uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, st := range h.inLine {
		ids = append(ids, st.id)
	}
	return ids
}

// TestHTTP2PlaceInLine: a stream that waits for its turn keeps its place when the deadline
// of its write is set again, or its own window opens.
func TestHTTP2PlaceInLine(t *testing.T) {
	tunnels := make(chan *upgraded2, 1)
	ts, _ := startUpgrades(t, func(nc net.Conn) {
		tunnels <- nc.(*upgraded2)
		_, _ = nc.Write(make([]byte, 2*queueLimit))
	})
	c := ts.dialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	var first *upgraded2
	var ids []uint32
	for range 3 { // the window of the connection is smaller than what one has to send
		id := c.tunnel("/")
		ids = append(ids, id)
		c.answer(id)
		u := receive(t, tunnels, "tunnel")
		if first == nil {
			first = u
		}
		for end := time.Now().Add(patience); !slices.Equal(u.st.h.line(), ids); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("in line: %v, want %v", u.st.h.line(), ids)
			}
		}
	}
	for n := range 1000 {
		if n%2 == 0 {
			_ = first.SetWriteDeadline(time.Now().Add(time.Hour))
		} else if err := c.WriteWindowUpdate(ids[0], 1); err != nil {
			t.Fatal(err)
		}
		if line := first.st.h.line(); !slices.Equal(line, ids) {
			t.Fatalf("in line: %v, want %v", line, ids)
		}
	}
	if err := c.WriteWindowUpdate(0, 1); err != nil {
		t.Fatal(err)
	}
	c.until(func(frame http2.Frame) bool {
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
	tunnels, sizes := make(chan *upgraded2, 1), make(chan int, 2)
	sizes <- 2 * queueLimit
	sizes <- 1000
	ts, _ := startUpgrades(t, func(nc net.Conn) {
		tunnels <- nc.(*upgraded2)
		_, _ = nc.Write(make([]byte, <-sizes))
	})
	c := ts.dialFrames(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	id := c.tunnel("/")
	c.answer(id)
	u := receive(t, tunnels, "tunnel")
	h := u.st.h
	lined := func(want ...uint32) {
		t.Helper()
		for end := time.Now().Add(patience); !slices.Equal(h.line(), want); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("in line: %v, want %v", h.line(), want)
			}
		}
	}
	lined(id)
	small := c.tunnel("/")
	c.answer(small)
	receive(t, tunnels, "tunnel")
	lined(id, small)
	for n := range 300 {
		_ = c.WriteWindowUpdate(0, 1)
		_ = c.WriteWindowUpdate(small, 1)
		want := id
		if n%2 == 1 {
			want = small
		}
		c.until(func(frame http2.Frame) bool {
			data, ok := frame.(*http2.DataFrame)
			if ok && len(data.Data()) == 1 && data.StreamID != want {
				t.Fatalf("%d: stream %d had the turn of %d", n, data.StreamID, want)
			}
			return ok && len(data.Data()) == 1
		})
	}
}
