package bench

import (
	"context"
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// backgroundTime is how long kube-apiserver is measured while no client sends requests.
const backgroundTime = 5 * time.Second

// deductBackground subtracts kube-apiserver's idle work (leases, health checks of etcd) from a
// slice whose processor time includes kube-apiserver's. Otherwise that work would hide the little
// that kubeweir requests from it. For kube-apiserver itself it is subtracted in the same rows.
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

// backgroundCost returns the share of time during which an idle kube-apiserver uses the processor.
func (m *measurer) backgroundCost(ctx context.Context) (float64, error) {
	pid := m.bed.apiserver.pid
	if err := m.quiet(ctx, pid); err != nil {
		return 0, err
	}
	before, err := realkube.CPUTime(pid)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := sleep(ctx, backgroundTime); err != nil {
		return 0, err
	}
	after, err := realkube.CPUTime(pid)
	return (after - before).Seconds() / time.Since(begin).Seconds(), err
}
