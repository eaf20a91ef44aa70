package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// forwarded measures a row of kind Write: the same writes directly and through the gateway, one at
// a time, alternating.
func (m *measurer) forwarded(ctx context.Context, r *Row) (*measured, error) {
	c, err := m.contestFor(ctx, r)
	if err != nil {
		return nil, err
	}
	defer c.close()
	gw := c.kubeweir
	out := &measured{}
	writers := []*writer{m.writer(c.rival), m.writer(gw.server)}
	totals := []*tally{&out.apiserver, &out.kubeweir}
	if m.profile != "" {
		writers, totals = writers[1:], totals[1:]
	}
	conns := make([]*conn, len(writers))
	for i, w := range writers {
		c, err := dial(ctx, w.server, 16<<10)
		if err != nil {
			return nil, err
		}
		defer c.close()
		conns[i] = c
		if err := w.write(c); err != nil {
			return nil, fmt.Errorf("%s: %w", w.server.name, err)
		}
	}
	n := m.effort.writes
	if m.profile != "" {
		n *= 5
	}
	before, err := realkube.CPUTime(gw.pid)
	if err != nil {
		return nil, err
	}
	err = m.profiled(ctx, r, func() error {
		for k := range n {
			for j := range writers {
				i := (j + k) % len(writers) // each is first half of the time
				begin := time.Now()
				if err := writers[i].write(conns[i]); err != nil {
					return fmt.Errorf("%s: %w", writers[i].server.name, err)
				}
				took := time.Since(begin)
				totals[i].latencies = append(totals[i].latencies, took)
				totals[i].wall += took
				totals[i].count++
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	after, err := realkube.CPUTime(gw.pid)
	out.notes = append(out.notes, fmt.Sprintf("kubeweir used %s of processor time a forwarded write, with the events of two",
		((after-before)/time.Duration(n)).Round(time.Microsecond)))
	return out, err
}
