package bench

import (
	"context"
	"slices"
	"time"
)

// backgroundTime is how long kube-apiserver is watched while nobody asks it for anything.
const backgroundTime = 5 * time.Second

// deductBackground takes off a slice what kube-apiserver does in that time anyway (leases, checks of etcd), where its
// processor time is counted beside kubeweir's: the little that kubeweir asks it for would not be seen otherwise. For
// kube-apiserver itself it is taken off in the same rows.
func (m *measurer) deductBackground(ctx context.Context, r *Row, s *server, t *tally) error {
	if !r.Upstream || m.effort.quiet == 0 || m.profile != "" || !slices.Contains(s.pids, m.bed.apiserver.pid) {
		return nil
	}
	if m.background == nil {
		used, err := m.backgroundCost(ctx)
		if err != nil {
			return err
		}
		m.background = &used
	}
	upstreams := t.cpu
	if s.pid != m.bed.apiserver.pid {
		upstreams -= t.own
	}
	t.deducted += min(upstreams, time.Duration(*m.background*float64(t.wall)))
	return nil
}

// backgroundCost is the share of its time that kube-apiserver uses the processor, left alone.
func (m *measurer) backgroundCost(ctx context.Context) (float64, error) {
	pid := m.bed.apiserver.pid
	if err := m.quiet(ctx, pid); err != nil {
		return 0, err
	}
	before, err := cpuTime(pid)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := sleep(ctx, backgroundTime); err != nil {
		return 0, err
	}
	after, err := cpuTime(pid)
	return (after - before).Seconds() / time.Since(begin).Seconds(), err
}
