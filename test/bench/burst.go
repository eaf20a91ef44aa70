package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// bursts measures a row of kind Burst.
func (m *measurer) bursts(ctx context.Context, r *Row) (*measured, error) {
	c, err := m.contestFor(ctx, r)
	if err != nil {
		return nil, err
	}
	defer c.close()
	gw := c.kubeweir
	path, err := m.bed.path(ctx, r, gw)
	if err != nil {
		return nil, err
	}
	spec := requestSpec{path: path, accept: r.Accept, gzip: r.Gzip}
	out := &measured{}
	servers := []*server{c.rival, m.counted(gw.server, r)}
	totals := []*tally{&out.apiserver, &out.kubeweir}
	if m.profile != "" {
		servers, totals = servers[1:], totals[1:]
	}
	err = m.profiled(ctx, r, func() error {
		for range m.effort.bursts {
			for i, s := range servers {
				t, err := m.burst(ctx, r, s, spec)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				totals[i].add(t)
			}
		}
		return nil
	})
	out.compareBytes(r)
	out.noteOwn(r)
	return out, err
}

// burst opens the clients' connections and sends one request on each at the same moment. The cost
// of concurrent writes is counted for both servers, because both need it for the same purpose.
func (m *measurer) burst(ctx context.Context, r *Row, s *server, spec requestSpec) (tally, error) {
	var t tally
	conns := make([]caller, min(r.Clients, m.effort.clients))
	for i := range conns {
		c, err := dialOver(ctx, r.Over, s)
		if err != nil {
			return t, err
		}
		defer c.close()
		conns[i] = c
	}
	// Send requests in advance, as every client would have: the servers cache repeated requests.
	for _, c := range conns[:min(2, len(conns))] {
		if _, err := once(repeat(c, spec)); err != nil {
			return t, err
		}
	}
	if err := m.quiet(ctx, s.pids...); err != nil {
		return t, err
	}
	through := m.bed.apiserver
	if r.WritesThrough {
		through = s
	}
	_, err := m.churning(ctx, through, r.Churn, func() error {
		before, err := realkube.CPUTime(s.pids...)
		if err != nil {
			return err
		}
		own, err := realkube.CPUTime(s.pid)
		if err != nil {
			return err
		}
		if err := together(conns, spec, &t); err != nil {
			return err
		}
		after, err := realkube.CPUTime(s.pids...)
		ownAfter, err2 := realkube.CPUTime(s.pid)
		t.cpu, t.own = after-before, ownAfter-own
		return errors.Join(err, err2)
	})
	if err == nil {
		err = m.deductBackground(ctx, r, s, &t)
	}
	return t, err
}

// together sends a request on all connections at once and waits for all responses.
func together(conns []caller, spec requestSpec, t *tally) error {
	responses := make([]response, len(conns))
	errs := make([]error, len(conns))
	t.latencies = make([]time.Duration, len(conns))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			<-start
			responses[i], errs[i] = once(repeat(c, spec))
			t.latencies[i] = responses[i].took
		})
	}
	begin := time.Now()
	close(start)
	wg.Wait()
	t.wall, t.count = time.Since(begin), int64(len(conns))
	for _, r := range responses {
		t.bytes += r.bytes
	}
	return errors.Join(errs...)
}
