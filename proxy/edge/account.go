package edge

import (
	"strings"
	"sync"
	"sync/atomic"
)

// userShare is how much a user may have of a budget for each byte that is free: one alone
// three quarters of it, two of them three sevenths each, and however many want more than
// there is, somebody who has nothing yet finds some free. proxy's limits are shared so, too.
const userShare = 3

// account is what one user has of the budgets, over all connections: who leaves much unread
// pays for it with streams of their own.
type account struct {
	user   string
	held   atomic.Int64 // of bufferBudget
	unread atomic.Int64 // of unreadAllowed
	// waiting is of waitingAllowed.
	waiting atomic.Int64

	holders int // connections and streams that count for it. Guarded by accounts.mu
}

// accounts are the users that connections are of. It is safe for concurrent use.
type accounts struct {
	// nobody has what connections hold before it is known whose they are.
	nobody account

	mu     sync.Mutex
	byUser map[string]*account // with holders
}

// of is a user's account, for one holder, who gives it back to release.
func (s *accounts) of(user string) *account {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.byUser[user]
	if a == nil {
		if s.byUser == nil {
			s.byUser = make(map[string]*account)
		}
		a = &account{user: strings.Clone(user)}
		s.byUser[a.user] = a
	}
	a.holders++
	return a
}

// release is for a holder that has nothing any more, if it was one.
func (s *accounts) release(a *account) {
	if a == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.holders--; a.holders == 0 {
		delete(s.byUser, a.user)
	}
}

// holder is for whom what the connection holds counts.
func (c *conn) holder() *account {
	if a := c.account.Load(); a != nil {
		return a
	}
	return &c.buffers.accounts.nobody
}

// attributeTo has what the connection holds count for a user from now on.
func (c *conn) attributeTo(user string) {
	if a := c.account.Load(); a == nil || a.user != user {
		all := &c.buffers.accounts
		c.account.Store(all.of(user))
		all.release(a)
	}
}

// claim is a user's account. What the connection holds counts for the first user to claim it; of
// any other the account is the caller's to release.
func (c *conn) claim(user string) (a *account, owned bool) {
	a = c.account.Load()
	if a != nil && a.user == user {
		return a, false
	}
	a = c.buffers.accounts.of(user)
	return a, !c.account.CompareAndSwap(nil, a)
}
