package edge

import (
	"sync"
	"sync/atomic"
)

// bufferBudget bounds, over all connections, the buffers that writes hold while their
// clients do not read, and those of what clients have sent over HTTP/2 and nobody has read:
// the more are in use, the smaller are those that are given out,
// so that a thousand clients that stand still cost some 60 MB. Writes to clients that
// read hold theirs for moments and find the largest. Beyond the whole of it watches
// take no more: see short.
const (
	bufferBudget   = 64 << 20
	recordsAllowed = bufferBudget / 4
	largeAllowed   = bufferBudget / 2

	// unreadAllowed bounds, over all connections, what was sent for upgrades that the
	// windows of the connections do not: upgrades may be left unread for ever, and are not
	// to take the budget from all others.
	unreadAllowed = bufferBudget / 4
)

// A buffer is pooled scratch space of one of three sizes.
type buffer struct {
	b    []byte
	size int
}

// buffers are a server's pools of them. It is safe for concurrent use.
type buffers struct {
	small, large, records sync.Pool
	held                  atomic.Int64 // bytes in use
	unread                atomic.Int64 // bytes of unreadAllowed
}

// leave reports whether n bytes more may be unread without a connection's window that
// waits for them. They count until they are read.
func (p *buffers) leave(n int64) bool {
	if p.unread.Add(n) <= unreadAllowed {
		return true
	}
	p.unread.Add(-n)
	return false
}

// get gives a buffer for size bytes, or a smaller one: of the three sizes the nearest
// that there is room for.
func (p *buffers) get(size int) *buffer {
	if size > smallBuffer {
		if b := p.getLarge(size); b != nil {
			return b
		}
	}
	return p.take(&p.small, smallBuffer)
}

// getLarge is get for who does without if a small one is all there is: nil then.
func (p *buffers) getLarge(size int) *buffer {
	held := p.held.Load()
	switch {
	case size >= recordsBuffer && held <= recordsAllowed:
		return p.take(&p.records, recordsBuffer)
	case held <= largeAllowed:
		return p.take(&p.large, largeBuffer)
	}
	return nil
}

func (p *buffers) take(pool *sync.Pool, size int) *buffer {
	p.held.Add(int64(size))
	if b, ok := pool.Get().(*buffer); ok {
		return b
	}
	return &buffer{b: make([]byte, 0, size), size: size}
}

func (p *buffers) put(b *buffer) {
	p.held.Add(-int64(b.size))
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

// short reports that the budget is spent. A watch whose client does not read at such
// a time is ended, the others write without a buffer where they may have to wait.
func (p *buffers) short() bool { return p.held.Load() > bufferBudget }
