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
func (m *Manager) kept() (all []checkpoint.Collection) {
	for _, e := range m.entries() {
		if c := e.current(); c != nil && e.feed.Checkpoint != nil {
			all = append(all, checkpoint.Collection{Checkpoint: e.feed.Checkpoint, Store: c.store, Context: e.ctx, Note: e.feed.Note})
		}
	}
	return all
}
