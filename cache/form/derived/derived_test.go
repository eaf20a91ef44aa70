package derived

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

// testSlot is a slot of kind 0, or of kind 1, which is expensive.
type testSlot struct {
	kind int
	key  string
}

func (s testSlot) Kind() int         { return s.kind }
func (s testSlot) IsExpensive() bool { return s.kind == 1 }
func (s testSlot) Size() int         { return len(s.key) }

func newTestCache(t *testing.T, budget int64) *Cache[testSlot] {
	t.Helper()
	d, err := New[testSlot](budget, []string{"cheap", "expensive"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { goleak.VerifyNone(t) })
	t.Cleanup(d.Close)
	return d
}

// value returns a build function that counts its calls.
func value(calls *atomic.Int64, v any) func(*Entry[testSlot]) (any, int, error) {
	return func(*Entry[testSlot]) (any, int, error) {
		calls.Add(1)
		return v, 100, nil
	}
}

func TestObtainBuildsOnce(t *testing.T) {
	d := newTestCache(t, 1<<20)
	var calls atomic.Int64
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			s := testSlot{kind: 1, key: "a"}
			id := uint64(i % 2)
			got, err := d.Obtain(&s, id, nil, value(&calls, id))
			if err != nil || got != id {
				t.Errorf("version %d: %v, %v", id, got, err)
			}
		})
	}
	wg.Wait()
	// Two versions of one slot may evict each other, but one caller at a time builds each, and
	// waiting callers find it.
	if n := calls.Load(); n < 2 || n > 50 {
		t.Errorf("built %d times", n)
	}
	calls.Store(0)
	s := testSlot{kind: 1, key: "b"}
	for range 10 {
		if _, err := d.Obtain(&s, 7, nil, value(&calls, "x")); err != nil {
			t.Fatal(err)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
	if _, err := d.Obtain(&s, 7, func(any) bool { return false }, value(&calls, "y")); err != nil || calls.Load() != 2 {
		t.Errorf("used an unusable value: %d, %v", calls.Load(), err)
	}
}

func TestObtainPassesTheOldEntry(t *testing.T) {
	d := newTestCache(t, 1<<20)
	s := testSlot{kind: 1, key: "a"}
	for id := range uint64(5) {
		_, err := d.Obtain(&s, id, nil, func(old *Entry[testSlot]) (any, int, error) {
			if (old == nil) != (id == 0) || old != nil && old.Value != id-1 {
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
	d := newTestCache(t, 1<<20)
	s := testSlot{key: "a"}
	broken := errors.New("broken")
	if _, err := d.Obtain(&s, 1, nil, func(*Entry[testSlot]) (any, int, error) { return nil, 0, broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	// A panic affects the panicking caller only; waiting callers try again.
	started, finish := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = d.Obtain(&s, 1, nil, func(*Entry[testSlot]) (any, int, error) {
			close(started)
			<-finish
			panic("bug")
		})
	})
	<-started
	var calls atomic.Int64
	wg.Go(func() {
		if got, err := d.Obtain(&s, 1, nil, value(&calls, "x")); err != nil || got != "x" {
			t.Errorf("%v, %v", got, err)
		}
	})
	close(finish)
	wg.Wait()
	if calls.Load() != 1 || len(d.making.slots) != 0 {
		t.Errorf("%d calls, %d left", calls.Load(), len(d.making.slots))
	}
}

// TestBudget checks that the cache stays within its budget, and that larger values work
// anyway.
func TestBudget(t *testing.T) {
	const budget = 100_000
	d := newTestCache(t, budget)
	for i := range 1000 {
		s := testSlot{key: fmt.Sprint(i)}
		d.put(&s, 1, strings.Repeat("x", 1000), 1000)
	}
	d.entries.Wait()
	if n := d.Bytes(); n <= 0 || n > budget {
		t.Errorf("%d bytes of %d", n, budget)
	}
	var calls atomic.Int64
	s := testSlot{kind: 1, key: "large"}
	for range 3 {
		got, err := d.Obtain(&s, 1, nil, func(*Entry[testSlot]) (any, int, error) {
			calls.Add(1)
			return "large", 2 * budget, nil
		})
		if err != nil || got != "large" {
			t.Errorf("%v, %v", got, err)
		}
	}
	if calls.Load() != 3 {
		t.Errorf("cached a value larger than the budget")
	}
}

// TestClose checks that values can be obtained while and after the cache is closed.
func TestClose(t *testing.T) {
	d := newTestCache(t, 1<<20)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 500 {
				s := testSlot{kind: j % 2, key: fmt.Sprint(i, j%7)}
				if got, err := d.Obtain(&s, uint64(j), nil, func(*Entry[testSlot]) (any, int, error) { return j, 10, nil }); err != nil || got != j {
					t.Errorf("%v, %v", got, err)
				}
			}
		})
	}
	wg.Go(d.Close)
	wg.Wait()
	d.Close()
	if d.Bytes() < 0 {
		t.Error("negative size")
	}
}
