package cache

import (
	"context"
	"github.com/kubeweir/kubeweir/cache/checkpoint"
)

// Kept lists the collections of which there are images: those that were in use when the last
// process ended. Images that are of no use are removed, as is one over which there is a
// panic. A disk that does not answer is waited for; who cannot wait calls it aside: what is read
// after ctx has ended changes nothing.
func (m *Manager) Kept(ctx context.Context) []checkpoint.Saved {
	if m.parts.keeper == nil {
		return nil
	}
	return m.parts.keeper.List(ctx, m.parts.panics)
}

// LeaveImages ends the keeping: what has changed is saved, and then Options.Keep.Images are
// not used any more, so that another Manager may have them. Collections are served as before.
// It reports whether it has come so far: a disk that does not answer is not waited for.
func (m *Manager) LeaveImages() bool {
	k := m.parts.keeper
	if k == nil {
		return true
	}
	if !k.Finish() {
		return false
	}
	k.HandOver()
	for _, e := range m.entries() {
		if e.image != nil {
			e.image.Leave()
		}
	}
	return true
}

// Forget removes what is kept of a collection that there will not be again. There must be
// none of it now.
func (m *Manager) Forget(c checkpoint.Saved) {
	if m.parts.keeper != nil {
		m.parts.keeper.Forget(c)
	}
}

// kept are the collections for the saver.
func (m *Manager) kept() []checkpoint.Collection {
	entries := m.entries()
	all := make([]checkpoint.Collection, len(entries))
	for i, e := range entries {
		all[i] = e
	}
	return all
}
