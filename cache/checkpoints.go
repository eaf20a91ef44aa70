package cache

import (
	"context"

	"github.com/kubeweir/kubeweir/cache/checkpoint"
)

// Checkpoints lists the collections that have checkpoints: those that were in use when the last
// process ended. See checkpoint.Checkpointer.List. A disk that does not respond blocks it; after
// the end of ctx it changes nothing.
func (m *Manager) Checkpoints(ctx context.Context) []checkpoint.Saved {
	if m.keeper == nil {
		return nil
	}
	return m.keeper.List(ctx, m.panics)
}

// ReleaseCheckpoints saves what has changed and then ends the use of Options.Checkpoints.Storage, so that
// another Manager may use them. Collections are served as before. It returns false if the disk does
// not respond.
func (m *Manager) ReleaseCheckpoints() bool {
	k := m.keeper
	if k == nil {
		return true
	}
	if !k.Finish() {
		return false
	}
	k.HandOver()
	for _, e := range m.entries() {
		if e.feed.Checkpoint != nil {
			e.feed.Checkpoint.Release()
		}
	}
	return true
}

// ForgetCheckpoint removes the checkpoint of a collection that will not come back and does not
// exist now.
func (m *Manager) ForgetCheckpoint(c checkpoint.Saved) {
	if m.keeper != nil {
		m.keeper.Forget(c)
	}
}

// kept returns the collections for the saver.
func (m *Manager) kept() []checkpoint.Collection {
	entries := m.entries()
	all := make([]checkpoint.Collection, len(entries))
	for i, e := range entries {
		all[i] = e
	}
	return all
}
