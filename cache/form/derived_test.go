package form

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func newTestDerived(t *testing.T, budget int64) *derived {
	t.Helper()
	d, err := newDerived(budget)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { goleak.VerifyNone(t) })
	t.Cleanup(d.close)
	return d
}

// value is a build function that counts its calls.
func value(calls *atomic.Int64, v any) func(*derivedEntry) (any, int, error) {
	return func(*derivedEntry) (any, int, error) {
		calls.Add(1)
		return v, 100, nil
	}
}

func TestObtainMakesOnce(t *testing.T) {
	d := newTestDerived(t, 1<<20)
	var calls atomic.Int64
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			s := slot{kind: derivedBody, key: "a"}
			id := uint64(i % 2)
			got, err := d.obtain(&s, id, nil, value(&calls, id))
			if err != nil || got != id {
				t.Errorf("version %d: %v, %v", id, got, err)
			}
		})
	}
	wg.Wait()
	// Two versions of one slot may push each other out, but each is made by one
	// at a time and found by those who wait for it.
	if n := calls.Load(); n < 2 || n > 50 {
		t.Errorf("made %d times", n)
	}
	calls.Store(0)
	s := slot{kind: derivedBody, key: "b"}
	for range 10 {
		if _, err := d.obtain(&s, 7, nil, value(&calls, "x")); err != nil {
			t.Fatal(err)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("made %d times", n)
	}
	if _, err := d.obtain(&s, 7, func(any) bool { return false }, value(&calls, "y")); err != nil || calls.Load() != 2 {
		t.Errorf("what is not usable was used: %d, %v", calls.Load(), err)
	}
}

func TestObtainHandsOverTheOld(t *testing.T) {
	d := newTestDerived(t, 1<<20)
	s := slot{kind: derivedBody, key: "a"}
	for id := range uint64(5) {
		_, err := d.obtain(&s, id, nil, func(old *derivedEntry) (any, int, error) {
			if (old == nil) != (id == 0) || old != nil && old.value != id-1 {
				t.Errorf("version %d builds upon %v", id, old)
			}
			return id, 10, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestObtainAfterFailure(t *testing.T) {
	d := newTestDerived(t, 1<<20)
	s := slot{kind: derivedRow, key: "a"}
	broken := errors.New("broken")
	if _, err := d.obtain(&s, 1, nil, func(*derivedEntry) (any, int, error) { return nil, 0, broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	// A panic is the panicking caller's alone; who waits tries himself.
	started, finish := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = d.obtain(&s, 1, nil, func(*derivedEntry) (any, int, error) {
			close(started)
			<-finish
			panic("bug")
		})
	})
	<-started
	var calls atomic.Int64
	wg.Go(func() {
		if got, err := d.obtain(&s, 1, nil, value(&calls, "x")); err != nil || got != "x" {
			t.Errorf("%v, %v", got, err)
		}
	})
	close(finish)
	wg.Wait()
	if calls.Load() != 1 || len(d.making.slots) != 0 {
		t.Errorf("%d calls, %d left", calls.Load(), len(d.making.slots))
	}
}

// TestDerivedBudget: the room taken stays within the budget, and what is larger
// than it works all the same.
func TestDerivedBudget(t *testing.T) {
	const budget = 100_000
	d := newTestDerived(t, budget)
	for i := range 1000 {
		s := slot{kind: derivedRow, key: fmt.Sprint(i)}
		d.put(&s, 1, strings.Repeat("x", 1000), 1000)
	}
	d.cache.Wait()
	if n := d.bytes(); n <= 0 || n > budget {
		t.Errorf("%d bytes of %d", n, budget)
	}
	var calls atomic.Int64
	s := slot{kind: derivedBody, key: "large"}
	for range 3 {
		got, err := d.obtain(&s, 1, nil, func(*derivedEntry) (any, int, error) {
			calls.Add(1)
			return "large", 2 * budget, nil
		})
		if err != nil || got != "large" {
			t.Errorf("%v, %v", got, err)
		}
	}
	if calls.Load() != 3 {
		t.Errorf("kept what is larger than the budget")
	}
}

// TestDerivedClose: closing in the middle of use ends the keeping, not the use.
func TestDerivedClose(t *testing.T) {
	d := newTestDerived(t, 1<<20)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 500 {
				s := slot{kind: derivedKind(j) % derivedKinds, key: fmt.Sprint(i, j%7)}
				if got, err := d.obtain(&s, uint64(j), nil, func(*derivedEntry) (any, int, error) { return j, 10, nil }); err != nil || got != j {
					t.Errorf("%v, %v", got, err)
				}
			}
		})
	}
	wg.Go(d.close)
	wg.Wait()
	d.close()
	if d.bytes() < 0 {
		t.Error("negative size")
	}
}

// writes records what is written to it.
type writes struct{ sizes []int }

func (w *writes) Write(p []byte) (int, error) {
	w.sizes = append(w.sizes, len(p))
	return len(p), nil
}

func TestChunks(t *testing.T) {
	var out bytes.Buffer
	var sizes writes
	var want bytes.Buffer
	c := chunks{w: writerPair{&out, &sizes}, buf: make([]byte, 0, 100)}
	put := func(s string) {
		want.WriteString(s)
		switch len(s) % 3 {
		case 0:
			c.write([]byte(s))
		case 1:
			c.writeString(s)
		default:
			c.append(len(s), func(b []byte) []byte { return append(b, s...) })
		}
	}
	for n := range 60 {
		put(strings.Repeat(string(rune('a'+n%26)), n))
	}
	put(strings.Repeat("long", 300))
	c.write(bytes.Repeat([]byte("x"), 1000))
	want.Write(bytes.Repeat([]byte("x"), 1000))
	c.flush()
	if c.err != nil || c.written != int64(want.Len()) || !bytes.Equal(out.Bytes(), want.Bytes()) {
		t.Errorf("wrote %d of %d: %v", c.written, want.Len(), c.err)
	}
	if len(sizes.sizes) > 40 {
		t.Errorf("%d writes: %v", len(sizes.sizes), sizes.sizes)
	}
}

type writerPair struct {
	a *bytes.Buffer
	b *writes
}

func (p writerPair) Write(b []byte) (int, error) {
	_, _ = p.b.Write(b)
	return p.a.Write(b)
}

// listWriter takes bytes in pieces.
type listWriter struct {
	bytes.Buffer
	lists int
}

func (w *listWriter) WritePieces(pieces [][]byte) (int, error) {
	w.lists++
	n := 0
	for _, p := range pieces {
		n += len(p)
		w.Write(p)
	}
	return n, nil
}

// TestChunksInPieces: what need not be copied and what must be keep their order.
func TestChunksInPieces(t *testing.T) {
	var out listWriter
	var want bytes.Buffer
	c := chunksTo(&out, make([]byte, 0, 3000))
	for n := range 500 {
		p := bytes.Repeat([]byte{byte('a' + n%26)}, n*7%2500)
		want.Write(p)
		switch n % 4 {
		case 0:
			c.write(p)
		case 1:
			c.writeString(string(p))
		case 2:
			c.append(len(p), func(b []byte) []byte { return append(b, p...) })
		default:
			c.refer(p)
		}
	}
	for range 2 * chunkSize / 2000 {
		c.refer(want.Bytes()[:2000])
		want.Write(want.Bytes()[:2000])
	}
	c.flush()
	if c.err != nil || c.written != int64(want.Len()) || !bytes.Equal(out.Bytes(), want.Bytes()) {
		t.Errorf("wrote %d of %d: %v", c.written, want.Len(), c.err)
	}
	if out.lists == 0 {
		t.Error("nothing was handed on in pieces")
	}
}
