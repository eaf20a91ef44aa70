package edge

import (
	"bytes"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// countingSocket counts writes and keeps what was written, until it fails.
type countingSocket struct {
	net.Conn
	writes int
	// deadline is the last that was set; a write after it fails when it has waited.
	deadline time.Time
	wait     time.Duration
	all      bytes.Buffer
	err      error
}

func (s *countingSocket) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if !s.deadline.IsZero() && time.Now().After(s.deadline) {
		time.Sleep(s.wait)
		return 0, os.ErrDeadlineExceeded
	}
	s.writes++
	return s.all.Write(p)
}

func (s *countingSocket) SetWriteDeadline(t time.Time) error {
	s.deadline = t
	return nil
}

func TestRecordsAreGathered(t *testing.T) {
	s := &countingSocket{}
	r := &socket{Conn: s}
	record := bytes.Repeat([]byte("0123456789abcdef"), RecordSize/16)
	write := func(p []byte) {
		t.Helper()
		if n, err := r.Write(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	write(record[:100])
	if s.writes != 1 {
		t.Fatalf("%d writes without gathering", s.writes)
	}
	want := bytes.Clone(record[:100])
	buf := (&Holder{buffers: &Buffers{}}).Buffer(RecordsBuffer)
	r.gather(buf)
	for range 80 {
		write(record)
		want = append(want, record...)
	}
	if err := r.release(); err != nil {
		t.Fatal(err)
	}
	if s.writes != 1+3 {
		t.Errorf("%d writes of 80 records", s.writes-1)
	}
	write(record[:1]) // at once again
	if !bytes.Equal(s.all.Bytes(), append(want, record[0])) {
		t.Error("not what was written")
	}
}

// TestReleaseHasItsTime: the last write has as much time as any other write, however long the
// writes before it took.
func TestReleaseHasItsTime(t *testing.T) {
	s := &countingSocket{}
	shared := &Shared{Options: Options{WriteTimeout: time.Minute}}
	c := &Conn{Shared: shared, Holder: Holder{buffers: &shared.Buffers}}
	c.socket.Conn, c.NetConn = s, &c.socket
	c.initIO()
	c.Out.secure = true
	c.Out.Gather(WriteSlice)
	if _, err := c.Out.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	c.Out.deadline, s.deadline = time.Now(), time.Time{} // the minute is over
	if err := c.Out.Release(); err != nil || s.all.String() != "late" {
		t.Fatalf("%q, %v", s.all.String(), err)
	}
	if left := time.Until(s.deadline); left < 30*time.Second {
		t.Errorf("%v left", left)
	}
}

// TestKeyUpdateHasItsTime: what TLS writes while it reads does not fail by the deadline of an answer of long ago. An
// answer does, and so does what has waited for the client.
func TestKeyUpdateHasItsTime(t *testing.T) {
	for _, c := range []struct {
		name string
		size int
		wait time.Duration
		ok   bool
	}{{"a key update", 27, 0, true}, {"an answer", ownRecord + 1, 0, false}, {"waited", 27, 20 * time.Second, false}} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := &countingSocket{deadline: time.Unix(1, 0), wait: c.wait}
				r := &socket{Conn: s, timeout: time.Minute}
				n, err := r.Write(make([]byte, c.size))
				if c.ok && (n != c.size || err != nil) || !c.ok && (n != 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
					t.Errorf("%d, %v", n, err)
				}
			})
		})
	}
}

// TestRecordsFailForGood: TLS counts gathered data as written, so nothing may follow once gathered
// data was lost.
func TestRecordsFailForGood(t *testing.T) {
	s := &countingSocket{err: errors.New("broken")}
	r := &socket{Conn: s}
	r.gather((&Holder{buffers: &Buffers{}}).Buffer(RecordsBuffer))
	if _, err := r.Write([]byte("lost")); err != nil {
		t.Fatal(err)
	}
	if err := r.release(); !errors.Is(err, s.err) {
		t.Fatalf("release: %v", err)
	}
	s.err = nil
	if _, err := r.Write([]byte("late")); err == nil || s.writes > 0 {
		t.Errorf("written after a loss: %v", err)
	}
}
