package cache

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/contain"
)

// NewManager returns a Manager. Close stops it. The error is that of the Registerer.
func NewManager(o Options) (*Manager, error) {
	limits := o.Limits.withDefaults()
	log := cmp.Or(o.Logger, slog.Default())
	m := &Manager{
		source:   o.Source,
		limits:   limits,
		listing:  make(chan struct{}, limits.ColdStarts),
		metrics:  newMetrics(),
		keeper:   checkpoint.New(o.Checkpoints, o.Source, log),
		log:      log,
		panics:   contain.New(o.Registerer, log),
		checking: make(chan struct{}, 1),
	}
	m.mu.collections = make(map[collectionKey]*entry)
	m.mu.rewound = make(map[collectionKey]time.Time)
	m.mu.wanted = make(map[collectionKey]time.Time)
	if o.Registerer != nil {
		if err := m.register(o.Registerer, o.CheckPeriod); err != nil {
			return nil, fmt.Errorf("cache metrics: %w", err)
		}
	}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	spawn := func(f func()) { m.panics.Go(&m.work, "background", f) }
	m.outage = reflector.NewOutage(m.ctx, o.Source, spawn, log)
	m.panics.Keep(&m.work, "background", m.tidy)
	if k := m.keeper; k != nil {
		k.Start(m.ctx, m.panics, m.kept)
	}
	if o.CheckPeriod > 0 {
		m.panics.Keep(&m.work, "background", func() { m.checkAll(o.CheckPeriod) })
	}
	return m, nil
}

// Close stops all collections and waits for their goroutines. Checkpoints are saved before, if that
// is possible within a few seconds.
func (m *Manager) Close() {
	m.mu.Lock()
	m.mu.closed = true
	m.mu.Unlock()
	if m.keeper != nil {
		m.keeper.Finish()
	}
	m.cancel(store.ErrManagerClosed)
	m.stop(store.ErrManagerClosed, func(*entry) bool { return true })
	m.work.Wait()
}
