package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// tabs measures a row of kind Tabs on the testbed: in turn kube-apiserver with nobody watching,
// kube-apiserver with the tabs, and kubeweir with the tabs.
func (m *measurer) tabs(ctx context.Context, r *Row) (*measured, error) {
	c, err := m.contestFor(ctx, r)
	if err != nil {
		return nil, err
	}
	defer c.close()
	out := &measured{}
	looking := m.looking(1)
	ws := writes{n: max(1, int(looking.Seconds()*float64(r.Rate))), rate: r.Rate, workers: churnWorkers}
	write := func(ctx context.Context) (int, error) {
		w := m.writer(m.bed.apiserver)
		w.pods = min(w.pods, r.Changing)
		done, err := w.run(ctx, ws)
		return int(done), err
	}
	if m.profile == "" {
		var cost time.Duration
		if m.deducts(c.rival) {
			if cost, err = m.writeCost(ctx, c.rival, writes{n: ws.n / 4, rate: ws.rate, workers: ws.workers}); err != nil {
				return nil, err
			}
		}
		if out.apiserver, err = m.look(ctx, r, c.rival, write); err != nil {
			return nil, fmt.Errorf("%s: %w", c.rival.name, err)
		}
		out.apiserver.deducted = min(out.apiserver.cpu, time.Duration(ws.n)*cost)
	}
	if out.kubeweir, err = m.look(ctx, r, c.kubeweir.server, write); err != nil {
		return nil, fmt.Errorf("kubeweir: %w", err)
	}
	out.noteWatches()
	return out, nil
}

// looking returns how long tabs watch in one of several parts of a row.
func (m *measurer) looking(parts time.Duration) time.Duration {
	if m.profile != "" {
		return profileTime
	}
	return m.effort.looking / parts
}

// scaledTabs measures a row of kind Tabs with a synthetic API server. The tabs watch
// for the whole period, so that the delivery intervals of the watches have time to be extended.
func (m *measurer) scaledTabs(ctx context.Context, r *Row) (*measured, error) {
	s, err := m.startScaled(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.sync(ctx); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	out := &measured{}
	var begun time.Time
	events := 0
	out.kubeweir, err = m.look(ctx, r, s.server, func(ctx context.Context) (int, error) {
		const together = 10 * time.Millisecond
		looking := m.looking(1)
		events, begun = 0, time.Now()
		for time.Since(begun) < looking {
			for due := int(time.Since(begun).Seconds() * float64(r.Rate)); events < due; events++ {
				s.upstream.update(random.IntN(s.upstream.pods))
			}
			if err := sleep(ctx, together); err != nil {
				return events, err
			}
		}
		return events, nil
	})
	if err != nil {
		return nil, err
	}
	out.noteWatches()
	out.notes = append(out.notes, fmt.Sprintf("%.0f events/s", float64(events)/out.kubeweir.wall.Seconds()))
	return out, nil
}

// look opens tabs and counts their events and the server's processor time while write changes pods.
// It does not count a first period, in which delivery intervals are extended.
func (m *measurer) look(ctx context.Context, r *Row, s *server, write func(context.Context) (int, error)) (tally, error) {
	var t tally
	n := min(r.Clients, m.effort.watchers)
	version, err := versionOf(ctx, s, "/api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dnone")
	if err != nil {
		return t, err
	}
	w, err := openWatchers(ctx, watchOptions{server: s, n: n, over: r.Over, perConn: r.PerConnection, buffer: 32 << 10, request: func(int) requestSpec {
		return requestSpec{path: "/api/v1/pods?watch=1&resourceVersion=" + version, accept: r.Accept}
	}})
	if err != nil {
		return t, err
	}
	defer w.close()
	if err := m.quiet(ctx, s.pids...); err != nil {
		return t, err
	}
	err = m.profiled(ctx, r, func() error {
		if _, err := write(ctx); err != nil {
			return err
		}
		before, err := realkube.CPUTime(s.pids...)
		if err != nil {
			return err
		}
		begin, got := time.Now(), w.bytes.Load()
		_, err = write(ctx)
		after, err2 := realkube.CPUTime(s.pids...)
		t.cpu, t.wall, t.bytes, t.closed = after-before, time.Since(begin), w.bytes.Load()-got, w.closed.Load()
		t.count = max(1, int64(float64(n)*t.wall.Seconds()))
		return errors.Join(err, err2)
	})
	return t, err
}
