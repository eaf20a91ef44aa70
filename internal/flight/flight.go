// Package flight coalesces simultaneous calls without ever giving a caller a result of a call that
// began before the caller called.
//
// singleflight lets a late caller share the call in flight, which is wrong for linearizable reads:
// that call may have read the store before the late caller's own write. Here the callers that
// arrive while a call for their key is in flight share the NEXT call.
package flight

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
)

// Group coalesces calls by key. The zero value is ready to use. It is safe for concurrent use and
// must not be copied.
type Group[K comparable, V any] struct {
	mu struct {
		sync.Mutex
		keys map[K]*queue[V] // guarded by mu; a key is present while a round of it runs
	}
}

// queue holds the running round of one key and the round that waits behind it.
type queue[V any] struct {
	next *round[V]
}

// round is one call and its callers.
type round[V any] struct {
	run     func(context.Context) (V, error)
	ctx     context.Context
	cancel  context.CancelFunc
	waiting int // guarded by Group.mu
	done    chan struct{}
	value   V // written before done is closed, like the fields below
	err     error
	callers int
}

// Round describes how a call was shared.
type Round struct {
	// First means that the caller opened the round: the others got the result of its call.
	First bool
	// Callers is how many waited for the call when it ended.
	Callers int
}

// Part returns the caller's share of the cost of the call.
func (r Round) Part() float64 {
	if r.Callers == 0 {
		return 0
	}
	return 1 / float64(r.Callers)
}

// Do returns the result of a call of run that began after Do was called. run is the function of
// whichever caller opened the round; its context ends when all callers of the round have given up.
// If ctx ends first, Do returns its error.
func (g *Group[K, V]) Do(ctx context.Context, key K, run func(context.Context) (V, error)) (value V, by Round, err error) {
	r, first := g.join(key, run)
	select {
	case <-r.done:
	case <-ctx.Done():
		g.leave(r)
		return value, Round{}, context.Cause(ctx)
	}
	return r.value, Round{first, r.callers}, r.err
}

// join enters the round of key's next call, and starts it if no call is in flight. first reports
// whether the caller opened the round.
func (g *Group[K, V]) join(key K, run func(context.Context) (V, error)) (r *round[V], first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q, busy := g.mu.keys[key]
	if busy && q.next != nil && q.next.waiting > 0 {
		q.next.waiting++
		return q.next, false
	}
	r = &round[V]{run: run, waiting: 1, done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if busy {
		q.next = r
		return r, true
	}
	if g.mu.keys == nil {
		g.mu.keys = make(map[K]*queue[V])
	}
	g.mu.keys[key] = &queue[V]{}
	go g.fly(key, r)
	return r, true
}

// fly runs the rounds of key until no round waits.
func (g *Group[K, V]) fly(key K, r *round[V]) {
	for r != nil {
		r.call(&g.mu.Mutex)

		g.mu.Lock()
		q := g.mu.keys[key]
		r, q.next = q.next, nil
		if r == nil {
			delete(g.mu.keys, key)
		}
		g.mu.Unlock()
	}
}

// call runs the round. A panic becomes its error: it ran on behalf of requests, and must not end
// the process. mu guards the number of waiting callers.
func (r *round[V]) call(mu *sync.Mutex) {
	defer close(r.done)
	defer r.cancel()
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		r.callers = r.waiting
	}()
	defer func() {
		if p := recover(); p != nil {
			r.err = fmt.Errorf("panic in a coalesced call: %v\n%s", p, debug.Stack())
		}
	}()
	r.value, r.err = r.run(r.ctx)
}

// leave stops waiting for r. The last caller to leave cancels its call.
func (g *Group[K, V]) leave(r *round[V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.waiting--
	if r.waiting == 0 {
		r.cancel()
	}
}
