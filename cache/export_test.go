package cache

import "time"

// CheckInvariants recomputes what the collection keeps up to date and says what
// differs, "" if nothing does.
func (c *Collection) CheckInvariants() string { return c.store.CheckInvariants() }

// Indexes is the number of indexes built.
func (c *Collection) Indexes() int { return c.store.Sizes().Indexes }

// Snapshots is the number of retained views and the bound of what they cost.
func (c *Collection) Snapshots() (views int, bytes int64) {
	z := c.store.Sizes()
	return z.Snapshots, z.SnapshotBytes
}

// DropSnapshots forgets the retained views.
func (c *Collection) DropSnapshots() { c.store.DropSnapshots() }

// WithoutJitter makes the feeds of a new manager retry after the mean delays.
func (m *Manager) WithoutJitter() {
	m.parts.jitter = func(n int64) int64 { return n / 2 }
}

// WithPages makes the feeds of a new manager list in pages of n.
func (m *Manager) WithPages(n int64) { m.parts.pageSize = n }

// WithDiskPatience makes a new manager wait at most d for each call of a disk that does not respond.
func (m *Manager) WithDiskPatience(d time.Duration) {
	m.parts.keeper.SetPatience(d)
}

// QueryColumns is the number of columns kept for queries, and what they cost.
func QueryColumns(c *Collection) (n int, bytes int64) {
	return c.columns.Size(c.store.Sizes().Churn)
}
