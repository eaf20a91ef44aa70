package storagetest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/origin/storage"
)

type opKind uint8

const (
	opPut opKind = iota
	opDelete
	opGet
	opCurrent
)

// An op is one call of a client and what came of it.
type op struct {
	client    int
	kind      opKind
	key       string
	expect    uint64
	value     string // of a put: no other has the same
	call, ret int64  // nanoseconds since the workload began; ret is the end of time while the outcome is unknown

	rev      uint64            // of the change, or of the store as read
	conflict bool              // the precondition did not hold
	current  *storage.KeyValue // the result of a get, or of a conflict
	unknown  bool              // it may or may not have happened
}

func (o op) String() string {
	what := fmt.Sprintf("client %d put %s=%q", o.client, o.key, o.value)
	switch o.kind {
	case opDelete:
		what = fmt.Sprintf("client %d delete %s", o.client, o.key)
	case opGet:
		what = fmt.Sprintf("client %d get %s", o.client, o.key)
	case opCurrent:
		what = fmt.Sprintf("client %d current revision", o.client)
	}
	if o.kind < opGet {
		what += fmt.Sprintf(" at %d", o.expect)
	}
	switch {
	case o.unknown:
		return what + " -> unknown"
	case o.conflict || o.kind == opGet:
		return what + " -> " + showPointer(o.current)
	}
	return what + fmt.Sprintf(" -> %d", o.rev)
}

// A workload is clients that change and read a few keys, and remembers what they did.
type workload struct {
	s       *session
	engines []storage.Engine
	keys    int
	begun   time.Time
	faults  bool // errors are expected
	ended   atomic.Int32
	// crashing is true while the engine crashes. Responses no longer count then, because they may
	// be from after the crash.
	crashing atomic.Bool
	acked    atomic.Int64 // changes that were acknowledged

	mu  sync.Mutex
	ops []op // guarded by mu
}

func newWorkload(s *session, engines []storage.Engine, keys int) *workload {
	return &workload{s: s, engines: engines, keys: keys, begun: time.Now()}
}

// run is one client: n calls, or, with n 0, calls until each returns false. each gets the number of
// calls made.
func (w *workload) run(client, n int, each func(done int) bool) {
	random := rand.New(rand.NewPCG(11, uint64(client)))
	known := map[string]uint64{} // what the client believes to be the revisions of keys
	for i := 0; n == 0 || i < n; i++ {
		o := op{client: client, key: w.s.key(fmt.Sprint("k", random.IntN(w.keys)))}
		o.expect = known[o.key]
		switch p := random.IntN(100); {
		case p < 60:
			o.kind, o.value = opPut, fmt.Sprintf("%d-%d", client, i)
		case p < 75 && o.expect != 0:
			o.kind = opDelete
		case p < 95:
			o.kind = opGet
		default:
			o.kind = opCurrent
		}
		if !w.do(w.engines[client%len(w.engines)], &o, known) {
			return
		}
		if each != nil && !each(i+1) {
			return
		}
	}
}

// runUntil is one client until stop is closed or the case has failed.
func (w *workload) runUntil(stop <-chan struct{}, client int) {
	w.run(client, 0, func(int) bool {
		select {
		case <-stop:
			return false
		default:
			return !w.s.Failed()
		}
	})
}

// do makes the call, remembers it and what the client learns of it. It is false when the client
// must give up.
func (w *workload) do(e storage.Engine, o *op, known map[string]uint64) bool {
	ctx := w.s.ctx
	var err error
	o.call = int64(time.Since(w.begun))
	switch o.kind {
	case opPut:
		o.rev, err = e.Put(ctx, o.key, []byte(o.value), storage.Precondition{Revision: o.expect}, 0)
	case opDelete:
		o.rev, err = e.Delete(ctx, o.key, storage.Precondition{Revision: o.expect})
	case opGet:
		var res storage.RangeResult
		res, err = e.Range(ctx, storage.RangeOptions{Prefix: o.key, Exact: true})
		o.rev = res.Revision
		if err == nil && len(res.KVs) > 0 {
			o.current = &res.KVs[0]
		}
	case opCurrent:
		o.rev, err = e.CurrentRevision(ctx)
	}
	o.ret = int64(time.Since(w.begun))

	var conflict *storage.ConflictError
	switch {
	case errors.As(err, &conflict):
		o.conflict, o.current = true, conflict.Current
		if o.kind >= opGet || conflict.Key != o.key {
			w.s.Errorf("%s: %v about %s", o, err, conflict.Key)
			return false
		}
	case err != nil && (!w.faults || ctx.Err() != nil):
		w.s.Errorf("%s: %v", o, err)
		return false
	case err != nil:
		o.unknown = true
	case o.kind < opGet:
		w.acked.Add(1)
	}
	if o.unknown || w.crashing.Load() {
		o.unknown, o.conflict, o.ret = true, false, math.MaxInt64
	}
	switch {
	case o.unknown:
	case o.kind == opPut && !o.conflict:
		known[o.key] = o.rev
	case o.kind != opCurrent && o.current != nil:
		known[o.key] = o.current.Revision
	case o.kind != opCurrent:
		delete(known, o.key)
	}
	w.mu.Lock()
	w.ops = append(w.ops, *o)
	w.mu.Unlock()
	if o.unknown {
		// While the store is away nothing is gained by asking as fast as can be.
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return true
}
