package edge

import (
	"sync"
	"sync/atomic"
)

// bufferBudget bounds, over all connections, the buffers that writes hold while their
// clients do not read, and those of what clients have sent over HTTP/2 and nobody has read:
// the more are in use, the smaller are those that are given out,
// so that a thousand clients that stand still cost some 60 MB. Writes to clients that
// read hold theirs for moments and find the largest. Who holds more than a share of it
// (account) has watches ended that are not read, and uploads and upgrades reset that are not
// read here: see over.
const (
	bufferBudget   = 64 << 20
	recordsAllowed = bufferBudget / 4
	largeAllowed   = bufferBudget / 2

	// unreadAllowed bounds, over all connections, what was sent for upgrades that the
	// windows of the connections do not: upgrades may be left unread for ever, and are not
	// to take the budget from all others. It is shared by the users as well.
	unreadAllowed = bufferBudget / 4

	// userAllowed is what any user may hold, however little is free: what others hold is not
	// for somebody to pay who holds next to nothing.
	userAllowed = 1 << 20
	// waitingStream is about what a stream takes that waits for its client, beside a
	// large head: a goroutine, and the request. waitingAllowed bounds that over all
	// connections. The users share it, strangers have strangersAllowed.
	waitingStream  = 8 << 10
	waitingAllowed = 2 * bufferBudget

	// strangersAllowed is from where on connections that nobody has been seen to use end
	// when what is queued for them is not read. Strangers' uploads and headers may have more.
	strangersAllowed = bufferBudget / 4
)

// A buffer is pooled scratch space of one of three sizes.
type buffer struct {
	b    []byte
	size int
	of   *account // while it is in use
}

// buffers are a server's pools of them. It is safe for concurrent use.
type buffers struct {
	small, large, records sync.Pool
	held                  atomic.Int64 // bytes in use
	unread                atomic.Int64 // bytes of unreadAllowed
	waiting               atomic.Int64 // bytes of waitingAllowed
	accounts              accounts
}

// hold counts n bytes more, or less, as held by a user.
func (p *buffers) hold(a *account, n int64) {
	p.held.Add(n)
	a.held.Add(n)
}

// over reports that a user with n bytes more would hold more than a share of the budget.
func (p *buffers) over(a *account, n int64) bool {
	held := a.held.Load() + n
	return held > userAllowed && held > userShare*(bufferBudget-p.held.Load()-n)
}

// wait reports whether n bytes more of a user's may wait for a client. They count until
// waited is called.
func (p *buffers) wait(a *account, n int64) bool {
	all, own := p.waiting.Add(n), a.waiting.Add(n)
	switch {
	case a == &p.accounts.nobody && own <= strangersAllowed:
		return true
	case a != &p.accounts.nobody && (own <= userAllowed || own <= userShare*(waitingAllowed-all)):
		return true
	}
	p.waited(a, n)
	return false
}

// waited is for n bytes that do not wait any more.
func (p *buffers) waited(a *account, n int64) {
	p.waiting.Add(-n)
	a.waiting.Add(-n)
}

// strangers reports that what is held for connections of nobody's is enough.
func (p *buffers) strangers() bool { return p.accounts.nobody.held.Load() > strangersAllowed }

// leave reports whether n bytes more of a user's may be unread without a connection's window
// that waits for them. They count until they are read.
func (p *buffers) leave(a *account, n int64) bool {
	all, own := p.unread.Add(n), a.unread.Add(n)
	if own <= userShare*(unreadAllowed-all) {
		return true
	}
	p.read(a, n)
	return false
}

// read is for n bytes that do not count as unread any more.
func (p *buffers) read(a *account, n int64) {
	p.unread.Add(-n)
	a.unread.Add(-n)
}

// get gives a user's connection a buffer for size bytes, or a smaller one: of the three
// sizes the nearest that there is room for.
func (p *buffers) get(a *account, size int) *buffer {
	if size > smallBuffer {
		if b := p.getLarge(a, size); b != nil {
			return b
		}
	}
	return p.take(a, &p.small, smallBuffer)
}

// getLarge is get for who does without if a small one is all there is: nil then.
func (p *buffers) getLarge(a *account, size int) *buffer {
	held := p.held.Load()
	switch {
	case size >= recordsBuffer && held <= recordsAllowed:
		return p.take(a, &p.records, recordsBuffer)
	case held <= largeAllowed:
		return p.take(a, &p.large, largeBuffer)
	}
	return nil
}

func (p *buffers) take(a *account, pool *sync.Pool, size int) *buffer {
	p.hold(a, int64(size))
	b, ok := pool.Get().(*buffer)
	if !ok {
		b = &buffer{b: make([]byte, 0, size), size: size}
	}
	b.of = a
	return b
}

func (p *buffers) put(b *buffer) {
	p.hold(b.of, -int64(b.size))
	b.of = nil
	if cap(b.b) != b.size {
		return // a head that did not fit
	}
	b.b = b.b[:0]
	switch b.size {
	case smallBuffer:
		p.small.Put(b)
	case largeBuffer:
		p.large.Put(b)
	default:
		p.records.Put(b)
	}
}

// crowded reports that half of the budget is spent: clients may send less before it is
// read.
func (p *buffers) crowded() bool { return p.held.Load() > largeAllowed }
