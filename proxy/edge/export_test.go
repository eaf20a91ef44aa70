package edge

// The identifiers below are exported for external tests.

var ListenSidecar = listenSidecar

// HeldByUser is what the users hold.
func (p *Buffers) HeldByUser() map[string]int64 {
	p.accounts.mu.Lock()
	defer p.accounts.mu.Unlock()
	held := map[string]int64{}
	for user, a := range p.accounts.byUser {
		held[user] = a.held.Load()
	}
	return held
}

// HeldByNobody is what counts for connections of which no user is known.
func (p *Buffers) HeldByNobody() int64 {
	return p.accounts.anonymous.held.Load() + p.accounts.anonymous.unread.Load()
}
