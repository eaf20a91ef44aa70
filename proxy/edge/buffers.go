package edge

import (
	"strings"
	"sync"
	"sync/atomic"
)

// BufferBudget bounds, over all connections, the buffers that writes hold while their clients do
// not read, and the buffers of data that clients have sent over HTTP/2 and nobody has read. The
// more of it is in use, the smaller are the buffers that are given out, so that a thousand stalled
// clients cost some 60 MB. Writes to clients that read hold their buffers for moments and find the
// largest. A user who holds more than a share of the budget (Account) has watches ended that are
// not read, and uploads and upgrades reset that are not read here: see OverShare.
const (
	BufferBudget = 64 << 20
	// RecordsAllowed and LargeAllowed are how much may be held when a buffer of that size is given
	// out.
	RecordsAllowed = BufferBudget / 4
	LargeAllowed   = BufferBudget / 2

	// UnreadAllowed bounds, over all connections, the unread data of upgrades beyond the windows of
	// their connections. Upgrades may stay unread forever and must not use up the budget of all
	// others. The users share it, too.
	UnreadAllowed = BufferBudget / 4

	// WaitingStream is the approximate memory of a stream that waits for its client, besides a
	// large header: a goroutine and the request. WaitingAllowed bounds it over all connections. The
	// users share it; anonymous connections have AnonymousAllowed.
	WaitingStream  = 8 << 10
	WaitingAllowed = 2 * BufferBudget

	// AnonymousAllowed is how much anonymous connections may hold before those end whose clients
	// do not read what is queued for them. Their uploads and headers may have more.
	AnonymousAllowed = BufferBudget / 4

	// UserShare is how many bytes of a budget a user may hold for each free byte. A single user
	// gets three quarters of the budget, two users three sevenths each. A user who holds nothing
	// always finds some free bytes. The limits of package proxy are shared in the same way.
	UserShare = 3
	// UserAllowed is how many bytes any user may hold, however few are free, so that a user who
	// holds little is not affected by others.
	UserAllowed = 1 << 20
)

// Sizes of buffers and of their contents.
const (
	// SmallHead is the size of the buffer in which most requests fit: client-go's
	// have about 500 bytes, with a service account's token about 1,500.
	SmallHead = 4096
	// RecordSize is the most that a TLS record holds.
	RecordSize = 16 << 10
	// WriteSlice is how much is written between two looks at the write deadline, and
	// so what a client must take within WriteTimeout.
	WriteSlice = 512 << 10
	// SmallBuffer holds a header and a small body, which then leave in one TLS record.
	SmallBuffer = 16 << 10
	// LargeBuffer collects what a BodyTo writes in small pieces: four TLS records.
	LargeBuffer = 64 << 10
	// RecordsBuffer gathers the TLS records of a WriteSlice; 32 bytes more for each
	// are enough for AEAD ciphers.
	RecordsBuffer = WriteSlice / RecordSize * (RecordSize + 32)
)

// Account is one user's share of the budgets, over all connections. Users who leave much unread
// lose streams of their own.
type Account struct {
	user    string
	held    atomic.Int64 // of BufferBudget
	unread  atomic.Int64 // of UnreadAllowed
	waiting atomic.Int64 // of WaitingAllowed

	holders int // connections and streams that count for it, guarded by accounts.mu
}

// Move has held and unread bytes count for another account.
func (a *Account) Move(to *Account, held, unread int64) {
	a.held.Add(-held)
	a.unread.Add(-unread)
	to.held.Add(held)
	to.unread.Add(unread)
}

// accounts are the users of the open connections. It is safe for concurrent use.
type accounts struct {
	// anonymous counts the buffers of connections whose users are not known yet.
	anonymous Account

	mu     sync.Mutex
	byUser map[string]*Account // with holders
}

// of returns a user's account for one holder, which gives it back with release.
func (s *accounts) of(user string) *Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.byUser[user]
	if a == nil {
		if s.byUser == nil {
			s.byUser = make(map[string]*Account)
		}
		a = &Account{user: strings.Clone(user)}
		s.byUser[a.user] = a
	}
	a.holders++
	return a
}

// release takes back the account of a holder, nil if it had none.
func (s *accounts) release(a *Account) {
	if a == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.holders--; a.holders == 0 {
		delete(s.byUser, a.user)
	}
}

// A Buffer is pooled scratch space of one of three sizes.
type Buffer struct {
	B    []byte
	size int
	of   *Account // while it is in use
}

// Buffers are a server's pools of buffers, and account for memory. It is safe for concurrent use.
type Buffers struct {
	small, large, records sync.Pool
	held                  atomic.Int64 // bytes in use
	unread                atomic.Int64 // bytes of UnreadAllowed
	waiting               atomic.Int64 // bytes of WaitingAllowed
	accounts              accounts
}

// inShare reports whether a user may have own bytes of a budget of limit bytes, of which all are
// in use.
func inShare(own, limit, all int64) bool { return own <= UserShare*(limit-all) }

// Anonymous returns the account of connections whose users are not known.
func (p *Buffers) Anonymous() *Account { return &p.accounts.anonymous }

// Usage returns how much of the three budgets is in use.
func (p *Buffers) Usage() (held, unread, waiting int64) {
	return p.held.Load(), p.unread.Load(), p.waiting.Load()
}

// Hold counts n bytes more, or less, as held by a user.
func (p *Buffers) Hold(a *Account, n int64) {
	p.held.Add(n)
	a.held.Add(n)
}

// OverShare reports whether a user with n bytes more would hold more than a share of the budget.
func (p *Buffers) OverShare(a *Account, n int64) bool {
	own := a.held.Load() + n
	return own > UserAllowed && !inShare(own, BufferBudget, p.held.Load()+n)
}

// UnderPressure reports whether half of the budget is in use: clients may send less before it is
// read, and less is held back for them.
func (p *Buffers) UnderPressure() bool { return p.held.Load() > LargeAllowed }

// Scale returns full, half of it or least: the less, the more is held.
func (p *Buffers) Scale(full, least int) int {
	switch held := p.held.Load(); {
	case held > LargeAllowed:
		return least
	case held > RecordsAllowed:
		return full / 2
	}
	return full
}

// AnonymousFull reports whether anonymous connections hold all that they may.
func (p *Buffers) AnonymousFull() bool { return p.accounts.anonymous.held.Load() > AnonymousAllowed }

// AddWaiting counts n bytes more of a user as waiting for a client, or reports that the user may
// have no more.
func (p *Buffers) AddWaiting(a *Account, n int64) bool {
	all, own := p.waiting.Add(n), a.waiting.Add(n)
	ok := own <= UserAllowed || inShare(own, WaitingAllowed, all)
	if a == &p.accounts.anonymous {
		ok = own <= AnonymousAllowed
	}
	if !ok {
		p.RemoveWaiting(a, n)
	}
	return ok
}

// RemoveWaiting undoes AddWaiting.
func (p *Buffers) RemoveWaiting(a *Account, n int64) {
	p.waiting.Add(-n)
	a.waiting.Add(-n)
}

// AddUnread counts n bytes more of a user as unread without a connection's window that waits for
// them, or reports that the user may have no more.
func (p *Buffers) AddUnread(a *Account, n int64) bool {
	all, own := p.unread.Add(n), a.unread.Add(n)
	ok := inShare(own, UnreadAllowed, all)
	if !ok {
		p.RemoveUnread(a, n)
	}
	return ok
}

// RemoveUnread undoes AddUnread.
func (p *Buffers) RemoveUnread(a *Account, n int64) {
	p.unread.Add(-n)
	a.unread.Add(-n)
}

// Put takes back a buffer.
func (p *Buffers) Put(b *Buffer) {
	p.Hold(b.of, -int64(b.size))
	b.of = nil
	if cap(b.B) != b.size {
		return // a header that did not fit
	}
	b.B = b.B[:0]
	p.pool(b.size).Put(b)
}

func (p *Buffers) pool(size int) *sync.Pool {
	switch size {
	case SmallBuffer:
		return &p.small
	case LargeBuffer:
		return &p.large
	}
	return &p.records
}

func (p *Buffers) get(a *Account, size int) *Buffer {
	p.Hold(a, int64(size))
	b, ok := p.pool(size).Get().(*Buffer)
	if !ok {
		b = &Buffer{B: make([]byte, 0, size), size: size}
	}
	b.of = a
	return b
}

// Holder is the owner of buffers that are charged to a user, who may not be known yet.
type Holder struct {
	buffers *Buffers
	account atomic.Pointer[Account]
}

// IsAnonymous reports whether no user is known yet.
func (h *Holder) IsAnonymous() bool { return h.account.Load() == nil }

// Account returns the account that the buffers count for.
func (h *Holder) Account() *Account {
	if a := h.account.Load(); a != nil {
		return a
	}
	return &h.buffers.accounts.anonymous
}

// AttributeTo makes the buffers count for another user from now on.
func (h *Holder) AttributeTo(user string) {
	if a := h.account.Load(); a == nil || a.user != user {
		h.account.Store(h.buffers.accounts.of(user))
		h.buffers.accounts.release(a)
	}
}

// Claim returns a user's account. The buffers count for the first user to claim it; the account of
// any other is the caller's to release.
func (h *Holder) Claim(user string) (a *Account, owned bool) {
	a = h.account.Load()
	if a != nil && a.user == user {
		return a, false
	}
	a = h.buffers.accounts.of(user)
	return a, !h.account.CompareAndSwap(nil, a)
}

// ReleaseAccount takes back an account that Claim gave to its caller, nil if it gave none.
func (h *Holder) ReleaseAccount(a *Account) { h.buffers.accounts.release(a) }

// OverShare reports whether the user holds more than a share of the budget. A watch whose client
// does not read at such a time is ended; the others write without a buffer where they may have to
// wait.
func (h *Holder) OverShare() bool { return h.buffers.OverShare(h.Account(), 0) }

// Buffer returns a buffer for size bytes, or a smaller one: of the three sizes the nearest that
// there is room for.
func (h *Holder) Buffer(size int) *Buffer {
	if size > SmallBuffer {
		if b := h.largeBuffer(size); b != nil {
			return b
		}
	}
	return h.buffers.get(h.Account(), SmallBuffer)
}

// largeBuffer is Buffer for callers that do without if a small one is all there is: nil then.
func (h *Holder) largeBuffer(size int) *Buffer {
	held := h.buffers.held.Load()
	switch {
	case size >= RecordsBuffer && held <= RecordsAllowed:
		return h.buffers.get(h.Account(), RecordsBuffer)
	case held <= LargeAllowed:
		return h.buffers.get(h.Account(), LargeBuffer)
	}
	return nil
}
