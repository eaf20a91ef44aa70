package cache

import (
	"runtime"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/watchmux"
)

// writers runs the deliveries of watch streams. An idle watch has no goroutine
// of its own, so when events come its stream is queued here and served by one of
// a few goroutines, whose stacks have grown to what a TLS write needs.
//
// A client that does not read blocks the goroutine that writes to it. Then the
// queue stands still, which is noticed after stall, and more goroutines start:
// slow clients cost a goroutine each and delay the others by stall at most.
//
// It is safe for concurrent use. All goroutines end by themselves when there is
// nothing to do.
type writers struct {
	mu struct {
		sync.Mutex
		queue   []*watchStream // waiting, oldest first
		head    int            // index of the oldest
		served  uint64         // streams taken from the queue so far
		active  int            // goroutines
		watched bool           // the stall timer is set
	}
	stall time.Duration
	base  int // goroutines that start without a stall
}

// scratch is what one goroutine needs for a delivery, kept from one to the next.
type scratch struct {
	deliveries []watchmux.Delivery
	frames     [][]byte
	buf        []byte
}

func newWriters() *writers {
	return &writers{stall: 5 * time.Millisecond, base: 2 * runtime.GOMAXPROCS(0)}
}

// submit queues s; it never blocks.
func (p *writers) submit(s *watchStream) {
	p.mu.Lock()
	p.mu.queue = append(p.mu.queue, s)
	if p.mu.active < p.base {
		p.mu.active++
		go p.run()
	} else if !p.mu.watched {
		p.watchLocked()
	}
	p.mu.Unlock()
}

// watchLocked looks after stall whether anything was taken from the queue.
func (p *writers) watchLocked() {
	p.mu.watched = true
	served := p.mu.served
	time.AfterFunc(p.stall, func() { p.relieve(served) })
}

func (p *writers) relieve(served uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.watched = false
	if p.mu.head == len(p.mu.queue) {
		return
	}
	if p.mu.served == served {
		// All are blocked, by as many slow clients. Doubling finds room for the
		// rest in a few steps, however many more there are.
		for range min(p.mu.active, len(p.mu.queue)-p.mu.head) {
			p.mu.active++
			go p.run()
		}
	}
	p.watchLocked()
}

// run serves the queue until it is empty.
func (p *writers) run() {
	var sc scratch
	for {
		s := p.take()
		if s == nil {
			return
		}
		s.run(&sc)
	}
}

func (p *writers) take() *watchStream {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.head == len(p.mu.queue) {
		p.mu.queue, p.mu.head = p.mu.queue[:0], 0
		p.mu.active--
		return nil
	}
	s := p.mu.queue[p.mu.head]
	p.mu.queue[p.mu.head] = nil
	p.mu.head++
	p.mu.served++
	if p.mu.head > 1024 && p.mu.head > len(p.mu.queue)/2 {
		// A stream is queued once at most, so what is left is bounded by their number.
		n := copy(p.mu.queue, p.mu.queue[p.mu.head:])
		clear(p.mu.queue[n:])
		p.mu.queue, p.mu.head = p.mu.queue[:n], 0
	}
	return s
}
