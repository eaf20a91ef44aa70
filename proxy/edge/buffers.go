package edge

import (
	"sync"
	"sync/atomic"
)

// BufferBudget bounds, over all connections, the buffers that writes hold while their
// clients do not read, and those of what clients have sent over HTTP/2 and nobody has read:
// the more are in use, the smaller are those that are given out,
// so that a thousand clients that stand still cost some 60 MB. Writes to clients that
// read hold theirs for moments and find the largest. Who holds more than a share of it
// (account) has watches ended that are not read, and uploads and upgrades reset that are not
// read here: see over.
const (
	BufferBudget   = 64 << 20
	RecordsAllowed = BufferBudget / 4
	LargeAllowed   = BufferBudget / 2

	// UnreadAllowed bounds, over all connections, what was sent for upgrades that the
	// windows of the connections do not: upgrades may be left unread for ever, and are not
	// to take the budget from all others. It is shared by the users as well.
	UnreadAllowed = BufferBudget / 4

	// UserAllowed is what any user may hold, however little is free: what others hold is not
	// for somebody to pay who holds next to nothing.
	UserAllowed = 1 << 20
	// WaitingStream is about what a stream takes that waits for its client, beside a
	// large head: a goroutine, and the request. waitingAllowed bounds that over all
	// connections. The users share it, strangers have strangersAllowed.
	WaitingStream  = 8 << 10
	WaitingAllowed = 2 * BufferBudget

	// StrangersAllowed is from where on connections that nobody has been seen to use end
	// when what is queued for them is not read. Strangers' uploads and headers may have more.
	StrangersAllowed = BufferBudget / 4
)

// A buffer is pooled scratch space of one of three sizes.
type Buffer struct {
	B    []byte
	size int
	of   *Account // while it is in use
}

// Buffers are a server's pools of them. It is safe for concurrent use.
type Buffers struct {
	small, large, records sync.Pool
	Held                  atomic.Int64 // bytes in use
	Unread                atomic.Int64 // bytes of unreadAllowed
	Waiting               atomic.Int64 // bytes of waitingAllowed
	Accounts              accounts
}

// Hold counts n bytes more, or less, as held by a user.
func (p *Buffers) Hold(a *Account, n int64) {
	p.Held.Add(n)
	a.Held.Add(n)
}

// OverShare reports that a user with n bytes more would hold more than a share of the budget.
func (p *Buffers) OverShare(a *Account, n int64) bool {
	held := a.Held.Load() + n
	return held > UserAllowed && held > UserShare*(BufferBudget-p.Held.Load()-n)
}

// AddWaiting reports whether n bytes more of a user's may wait for a client. They count until
// waited is called.
func (p *Buffers) AddWaiting(a *Account, n int64) bool {
	all, own := p.Waiting.Add(n), a.waiting.Add(n)
	switch {
	case a == &p.Accounts.Anonymous && own <= StrangersAllowed:
		return true
	case a != &p.Accounts.Anonymous && (own <= UserAllowed || own <= UserShare*(WaitingAllowed-all)):
		return true
	}
	p.RemoveWaiting(a, n)
	return false
}

// RemoveWaiting is for n bytes that do not wait any more.
func (p *Buffers) RemoveWaiting(a *Account, n int64) {
	p.Waiting.Add(-n)
	a.waiting.Add(-n)
}

// AnonymousFull reports that what is held for connections of nobody's is enough.
func (p *Buffers) AnonymousFull() bool { return p.Accounts.Anonymous.Held.Load() > StrangersAllowed }

// AddUnread reports whether n bytes more of a user's may be unread without a connection's window
// that waits for them. They count until they are read.
func (p *Buffers) AddUnread(a *Account, n int64) bool {
	all, own := p.Unread.Add(n), a.Unread.Add(n)
	if own <= UserShare*(UnreadAllowed-all) {
		return true
	}
	p.RemoveUnread(a, n)
	return false
}

// RemoveUnread is for n bytes that do not count as unread any more.
func (p *Buffers) RemoveUnread(a *Account, n int64) {
	p.Unread.Add(-n)
	a.Unread.Add(-n)
}

// Get gives a user's connection a buffer for size bytes, or a smaller one: of the three
// sizes the nearest that there is room for.
func (p *Buffers) Get(a *Account, size int) *Buffer {
	if size > SmallBuffer {
		if b := p.GetLarge(a, size); b != nil {
			return b
		}
	}
	return p.take(a, &p.small, SmallBuffer)
}

// GetLarge is get for who does without if a small one is all there is: nil then.
func (p *Buffers) GetLarge(a *Account, size int) *Buffer {
	held := p.Held.Load()
	switch {
	case size >= RecordsBuffer && held <= RecordsAllowed:
		return p.take(a, &p.records, RecordsBuffer)
	case held <= LargeAllowed:
		return p.take(a, &p.large, LargeBuffer)
	}
	return nil
}

func (p *Buffers) take(a *Account, pool *sync.Pool, size int) *Buffer {
	p.Hold(a, int64(size))
	b, ok := pool.Get().(*Buffer)
	if !ok {
		b = &Buffer{B: make([]byte, 0, size), size: size}
	}
	b.of = a
	return b
}

func (p *Buffers) Put(b *Buffer) {
	p.Hold(b.of, -int64(b.size))
	b.of = nil
	if cap(b.B) != b.size {
		return // a head that did not fit
	}
	b.B = b.B[:0]
	switch b.size {
	case SmallBuffer:
		p.small.Put(b)
	case LargeBuffer:
		p.large.Put(b)
	default:
		p.records.Put(b)
	}
}

// UnderPressure reports that half of the budget is spent: clients may send less before it is
// read.
func (p *Buffers) UnderPressure() bool { return p.Held.Load() > LargeAllowed }
