package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pageRate is how many lists with queries a client sends a second while pods are updated, so that
// the pods change between two lists.
const pageRate = 40

// queries measures a row of kind Queries. The first list of each query, which reads a path in every
// pod, goes to the notes.
func (m *measurer) queries(ctx context.Context, r *Row) (*measured, error) {
	s, err := m.startScaled(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.sync(ctx); err != nil {
		return nil, err
	}
	c, err := dial(ctx, s.server, 64<<10)
	if err != nil {
		return nil, err
	}
	defer c.close()
	out := &measured{}
	var specs []requestSpec
	note := "the first list by each took"
	for _, path := range r.paths(r.Path) {
		spec := requestSpec{path: path}
		specs = append(specs, spec)
		first, err := once(repeat(c, spec))
		if err != nil {
			return nil, err
		}
		note += fmt.Sprintf(" %d ms", first.took.Milliseconds())
	}
	out.notes = append(out.notes, note)
	if err := m.quiet(ctx, s.pid); err != nil {
		return nil, err
	}
	var requested exchange = repeat(c, specs...)
	if r.Churn > 0 {
		requested = &paced{exchange: requested, every: time.Second / pageRate}
		end := s.updating(ctx, r.Churn)
		defer end()
	}
	err = m.profiled(ctx, r, func() (err error) {
		out.kubeweir, err = sliceNow(ctx, s.server, limits{requests: m.effort.queries, exactly: true}, requested)
		return err
	})
	return out, errors.Join(err, ctx.Err())
}

// updating updates pods at the given rate until end is called.
func (s *scaled) updating(ctx context.Context, rate int) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		begin := time.Now()
		for k := 0; sleep(ctx, time.Until(begin.Add(time.Duration(k)*time.Second/time.Duration(rate)))) == nil; k++ {
			s.upstream.update(k * 7919 % s.upstream.pods)
		}
	}()
	return func() {
		stop()
		<-done
	}
}

// paced is an exchange that begins at most once per interval.
type paced struct {
	exchange
	every time.Duration
	next  time.Time
}

func (p *paced) begin() error {
	time.Sleep(time.Until(p.next))
	p.next = time.Now().Add(p.every)
	return p.exchange.begin()
}
