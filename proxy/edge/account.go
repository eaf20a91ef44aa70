package edge

import (
	"strings"
	"sync"
	"sync/atomic"
)

// UserShare is how much a user may have of a budget for each byte that is free: one alone
// three quarters of it, two of them three sevenths each, and however many want more than
// there is, somebody who has nothing yet finds some free. proxy's limits are shared so, too.
const UserShare = 3

// Account is what one user has of the budgets, over all connections: who leaves much unread
// pays for it with streams of their own.
type Account struct {
	user   string
	Held   atomic.Int64 // of bufferBudget
	Unread atomic.Int64 // of unreadAllowed
	// waiting is of waitingAllowed.
	waiting atomic.Int64

	holders int // connections and streams that count for it. Guarded by accounts.mu
}

// accounts are the users that connections are of. It is safe for concurrent use.
type accounts struct {
	// anonymous has what connections hold before it is known whose they are.
	Anonymous Account

	Mu     sync.Mutex
	ByUser map[string]*Account // with holders
}

// of is a user's account, for one holder, who gives it back to release.
func (s *accounts) of(user string) *Account {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	a := s.ByUser[user]
	if a == nil {
		if s.ByUser == nil {
			s.ByUser = make(map[string]*Account)
		}
		a = &Account{user: strings.Clone(user)}
		s.ByUser[a.user] = a
	}
	a.holders++
	return a
}

// Release is for a holder that has nothing any more, if it was one.
func (s *accounts) Release(a *Account) {
	if a == nil {
		return
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if a.holders--; a.holders == 0 {
		delete(s.ByUser, a.user)
	}
}

// Holder is for whom what the connection holds counts.
func (c *Conn) Holder() *Account {
	if a := c.Account.Load(); a != nil {
		return a
	}
	return &c.Buffers.Accounts.Anonymous
}

// AttributeTo has what the connection holds count for a user from now on.
func (c *Conn) AttributeTo(user string) {
	if a := c.Account.Load(); a == nil || a.user != user {
		all := &c.Buffers.Accounts
		c.Account.Store(all.of(user))
		all.Release(a)
	}
}

// Claim is a user's account. What the connection holds counts for the first user to claim it; of
// any other the account is the caller's to release.
func (c *Conn) Claim(user string) (a *Account, owned bool) {
	a = c.Account.Load()
	if a != nil && a.user == user {
		return a, false
	}
	a = c.Buffers.Accounts.of(user)
	return a, !c.Account.CompareAndSwap(nil, a)
}
