package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/origin/storage"
)

// A stallable disk syncs when it is let to.
type stallable struct {
	vfs.FS
	stalled atomic.Bool
	syncs   atomic.Int64
	let     chan struct{}
}

func newStallable() *stallable {
	s := &stallable{let: make(chan struct{})}
	s.FS = hook(vfs.NewMem(), func(op errorfs.Op) error {
		if isSync(op) && s.stalled.Load() {
			s.syncs.Add(1)
			<-s.let
		}
		return nil
	})
	return s
}

type response struct {
	i   int
	rev uint64
	err error
}

// TestGroup: what comes during a sync is one group, that is invisible until the next sync is over; its
// revisions follow on one another, and its preconditions are checked in order.
func TestGroup(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		disk := newStallable()
		e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
		defer e.Close()
		ctx := context.Background()
		w, err := e.Watch(ctx, storage.WatchOptions{After: 1})
		if err != nil {
			t.Fatal(err)
		}
		disk.stalled.Store(true)
		const n = 100
		responses := make(chan response, 2*n)
		put := func(i int, key string) {
			go func() {
				rev, err := e.Put(ctx, key, []byte(fmt.Sprint(i)), storage.Precondition{}, 0)
				responses <- response{i, rev, err}
			}()
			synctest.Wait()
		}
		put(0, "first")
		for i := range n {
			put(1+i, fmt.Sprint("key", i/2)) // each second is a conflict
		}
		check := func(what string, revision uint64, syncs, done int) {
			t.Helper()
			synctest.Wait()
			if got := mustRevision(t, e); got != revision {
				t.Errorf("%s: revision %d, want %d", what, got, revision)
			}
			if res, err := e.Range(ctx, storage.RangeOptions{Count: true}); err != nil || res.Count != int64(revision-1) || len(res.KVs) != int(revision-1) {
				t.Errorf("%s: %d keys, %v", what, res.Count, err)
			}
			var future *storage.FutureError
			if _, err := e.Range(ctx, storage.RangeOptions{Revision: revision + 1}); !errors.As(err, &future) {
				t.Errorf("%s: %v, want a FutureError", what, err)
			}
			if got := disk.syncs.Load(); got != int64(syncs) || len(responses) != done {
				t.Errorf("%s: %d syncs and %d answers, want %d and %d", what, got, len(responses), syncs, done)
			}
			w.RequestProgress()
			if b, err := w.Next(ctx); err != nil || b.Revision != revision {
				t.Errorf("%s: told of %d, %v", what, b.Revision, err)
			}
		}
		check("before the sync", 1, 1, 0)
		disk.let <- struct{}{}
		check("after the first sync", 2, 2, 1)
		disk.let <- struct{}{}
		check("after the second sync", 2+n/2, 2, 1+n)
		disk.stalled.Store(false)

		var revs []uint64
		conflicts := 0
		for range 1 + n {
			a := <-responses
			var conflict *storage.ConflictError
			switch {
			case a.err == nil:
				revs = append(revs, a.rev)
			case errors.As(a.err, &conflict) && conflict.Current != nil && string(conflict.Current.Value) == fmt.Sprint(a.i-1):
				conflicts++
			default:
				t.Errorf("put %d: %v", a.i, a.err)
			}
		}
		slices.Sort(revs)
		for i, rev := range revs {
			if rev != uint64(i+2) {
				t.Fatalf("revisions %v", revs)
			}
		}
		if conflicts != n/2 {
			t.Errorf("%d conflicts", conflicts)
		}
		mustVerify(t, e)
	})
}

// TestStalledDisk: a caller with a deadline does not wait longer than that, and its change is taken back if it was not
// under way. The queue has an end.
func TestStalledDisk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		disk := newStallable()
		e := openAt(t, Options{Dir: "data", FS: disk, HistoryAge: -1})
		defer e.Close()
		disk.stalled.Store(true)
		put := func(key string) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := e.Put(ctx, key, make([]byte, 1<<20), storage.Precondition{}, 0)
			return err
		}
		start := time.Now()
		for _, key := range []string{"under way", "taken back"} {
			if err := put(key); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", key, err)
			}
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("refused after %v", took)
		}
		errs := make(chan error, 200)
		for i := range cap(errs) {
			go func() { errs <- put(fmt.Sprint("many", i)) }()
		}
		synctest.Wait()
		if rejected := len(errs); rejected < cap(errs)-queueBytes>>20 {
			t.Errorf("%d of %d refused at once", rejected, cap(errs))
		}
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("put: %v", err)
			}
		}
		disk.stalled.Store(false)
		disk.let <- struct{}{}
		synctest.Wait()
		if got := known(t, e); len(got) != 1 || got["under way"] == 0 {
			t.Errorf("keys %v", got)
		}
		if e.queue.mu.bytes != 0 || len(e.queue.mu.changes) != 0 {
			t.Errorf("%d bytes, %d changes are left in the queue", e.queue.mu.bytes, len(e.queue.mu.changes))
		}
		mustPut(t, e, "after", "v", 0)
		mustVerify(t, e)
	})
}

// TestWatchFromZero: nothing was before the first change.
func TestWatchFromZero(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx := context.Background()
	opts := memory()
	for _, written := range []int{0, 1, 2} {
		e := openAt(t, opts) // what was written before is in the log alone
		w, err := e.Watch(ctx, storage.WatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.RequestProgress()
		b, err := w.Next(ctx)
		if err != nil || b.Revision != mustRevision(t, e) || len(b.Events) != written {
			t.Errorf("%d written: %+v, %v", written, b, err)
		}
		w.Close()
		mustPut(t, e, fmt.Sprint("key", written), "v", 0)
		mustClose(t, e)
	}
}

// TestBadCalls are refused without a trace.
func TestBadCalls(t *testing.T) {
	e := openAt(t, memory())
	defer mustClose(t, e)
	ctx := context.Background()
	for _, key := range []string{"", string(make([]byte, maxKey+1))} {
		if _, err := e.Put(ctx, key, nil, storage.Precondition{}, 0); err == nil {
			t.Errorf("put %d bytes of key", len(key))
		}
	}
	if _, err := e.Delete(ctx, "a", storage.Precondition{}); err == nil {
		t.Error("deleted what must not exist")
	}
	if _, err := e.Put(ctx, "a", make([]byte, maxValue+1), storage.Precondition{}, 0); !errors.Is(err, storage.ErrTooLarge) {
		t.Errorf("error %v, want ErrTooLarge", err)
	}
	if rev := mustRevision(t, e); rev != firstRevision {
		t.Errorf("revision %d", rev)
	}
	if _, err := e.Put(ctx, "a", make([]byte, maxValue), storage.Precondition{}, 0); err != nil {
		t.Errorf("the largest value: %v", err)
	}
}

// TestMetrics are registered, say what is, and go with the engine.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	opts := memory()
	opts.Registerer = registry
	opts.HistoryAge = -1
	for range 2 {
		e := openAt(t, opts)
		rev := uint64(0)
		if res, err := e.Range(context.Background(), storage.RangeOptions{Prefix: "a"}); err == nil && len(res.KVs) > 0 {
			rev = res.KVs[0].Revision
		}
		rev = mustPut(t, e, "a", "v", rev)
		if err := e.Compact(context.Background(), rev); err != nil {
			t.Fatal(err)
		}
		w, err := e.Watch(context.Background(), storage.WatchOptions{After: rev})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		for name, want := range map[string]float64{
			"revision": float64(rev), "compacted_revision": float64(rev), "keys": 1, "watchers": 1, "queued_changes": 0,
			"available": 1, "compactions_total": 1, "commit_changes": 2, "commit_seconds": 2, "index_bytes": 1 + indexSlot,
		} {
			if got["kubeweir_store_"+name] != want {
				t.Errorf("%s is %v, want %v", name, got["kubeweir_store_"+name], want)
			}
		}
		if got["kubeweir_store_disk_bytes"] <= 0 {
			t.Errorf("metrics %v", got)
		}
		mustClose(t, e)
		if families, err := registry.Gather(); err != nil || len(families) != 0 {
			t.Errorf("%d families after closing, %v", len(families), err)
		}
	}
}
