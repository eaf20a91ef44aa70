package cache

import "time"

// WithoutJitter makes the reflectors of a new manager retry after the mean delays.
func (m *Manager) WithoutJitter() {
	m.parts.jitter = func(n int64) int64 { return n / 2 }
}

// WithDiskPatience makes a new manager wait at most d for each operation of a disk that does not
// respond.
func (m *Manager) WithDiskPatience(d time.Duration) {
	m.parts.keeper.SetPatience(d)
}
