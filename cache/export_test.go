package cache

import "time"

// CheckInvariants recomputes derived state and returns the first difference, or "".
func (c *Collection) CheckInvariants() string { return c.store.CheckInvariants() }

// Indexes returns the number of built indexes.
func (c *Collection) Indexes() int { return c.store.Sizes().Indexes }

// Snapshots returns the number of retained snapshots and the bound of their size.
func (c *Collection) Snapshots() (views int, bytes int64) {
	z := c.store.Sizes()
	return z.Snapshots, z.SnapshotBytes
}

// DropSnapshots drops the retained snapshots.
func (c *Collection) DropSnapshots() { c.store.DropUnused(time.Now().Add(time.Hour)) }

// WithoutJitter makes the reflectors of a new manager retry after the mean delays.
func (m *Manager) WithoutJitter() {
	m.parts.jitter = func(n int64) int64 { return n / 2 }
}

// WithPages makes the reflectors of a new manager list in pages of n.
func (m *Manager) WithPages(n int64) { m.parts.pageSize = n }

// WithDiskPatience makes a new manager wait at most d for each operation of a disk that does not
// respond.
func (m *Manager) WithDiskPatience(d time.Duration) {
	m.parts.keeper.SetPatience(d)
}

// QueryColumns returns the number of cached query columns and their size.
func QueryColumns(c *Collection) (n int, bytes int64) {
	return c.columns.Size(c.store.Sizes().Churn)
}
