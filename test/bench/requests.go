package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// requests measures a row of kind Requests or Pages.
func (m *measurer) requests(ctx context.Context, r *Row) (*measured, error) {
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
	if r.Conditional {
		if spec.ifNoneMatch, err = etagOf(ctx, gw, spec); err != nil {
			return nil, err
		}
	}
	out := &measured{}
	sides := []*side{
		{server: c.rival, total: &out.apiserver, cpu: m.effort.apiserver, warmUp: 2},
		{server: m.counted(gw.server, r), total: &out.kubeweir, cpu: m.effort.gateway, warmUp: 3},
		{server: m.bed.floor.server, total: &out.floor, cpu: m.effort.floor, warmUp: 1},
	}
	if m.profile != "" {
		sides = sides[1:2]
	} else if err := m.storeOnFloor(ctx, gw.server, r, &spec); err != nil {
		return nil, err
	}
	for _, s := range sides {
		if err := s.open(ctx, r, spec); err != nil {
			return nil, err
		}
		defer s.conn.close()
	}
	for range m.rounds() {
		for _, s := range sides {
			if err := m.requestSlice(ctx, r, s); err != nil {
				return nil, fmt.Errorf("%s: %w", s.server.name, err)
			}
		}
	}
	if !r.Conditional && !r.Gzip {
		out.compareBytes()
	}
	out.noteOwn(r)
	return out, nil
}

// A side is one of the servers of a row, with the client that calls it.
type side struct {
	server *server
	total  *tally
	cpu    time.Duration // to be used over all rounds
	warmUp int           // requests before the first slice
	conn   *conn
	step   func() (response, error)
}

func (s *side) open(ctx context.Context, r *Row, spec requestSpec) error {
	var err error
	if s.conn, err = dial(ctx, s.server, 64<<10); err != nil {
		return err
	}
	if s.server.name == "floor" {
		spec.path = floorPath(r, 0)
	}
	if r.Kind == Pages {
		s.step = s.pages(r, spec)
	} else {
		request := s.server.encode(spec)
		s.step = func() (response, error) { return s.conn.get(request, 200, 304) }
	}
	for range s.warmUp {
		if _, err := s.step(); err != nil {
			return fmt.Errorf("%s: %w", s.server.name, err)
		}
	}
	return nil
}

// continueToken finds the token in the beginning of a list.
var continueToken = regexp.MustCompile(`"continue":"([^"]+)"`)

// pages makes a step that reads the next page, and the first one after the last.
func (s *side) pages(r *Row, spec requestSpec) func() (response, error) {
	first := s.server.encode(spec)
	next, page := first, 0
	return func() (response, error) {
		resp, err := s.conn.get(next, 200)
		if err != nil {
			return resp, err
		}
		m := continueToken.FindSubmatch(resp.head)
		switch {
		case m == nil:
			next, page = first, 0
		case s.server.name == "floor":
			page++
			next = s.server.encode(requestSpec{path: floorPath(r, page)})
		default:
			next = s.server.encode(requestSpec{path: "/api/v1/pods?limit=500&continue=" + string(m[1])})
		}
		return resp, nil
	}
}

// requestSlice measures one server for a while, and takes off kube-apiserver what updates meanwhile cost it.
func (m *measurer) requestSlice(ctx context.Context, r *Row, s *side) error {
	lim := limits{cpu: s.cpu / time.Duration(m.rounds()), requests: m.effort.requests}
	if m.profile != "" {
		lim = limits{requests: 1, wall: profileTime + time.Second}
	}
	if r.Churn == 0 || s.server.name == "floor" {
		return m.profiled(ctx, r, func() error {
			t, err := slice(ctx, s.server, lim, s.step)
			s.total.add(t)
			return err
		})
	}
	var cost time.Duration
	if m.deducts(s.server) {
		var err error
		n := max(1, int(m.effort.watching.Seconds()*float64(r.Churn)))
		if cost, err = m.writeCost(ctx, m.bed.apiserver, writes{n: n, rate: r.Churn, workers: churnWorkers}); err != nil {
			return err
		}
	}
	var t tally
	written, err := m.churning(ctx, m.bed.apiserver, r.Churn, func() error {
		return m.profiled(ctx, r, func() (err error) {
			t, err = sliceNow(ctx, s.server, lim, s.step)
			return err
		})
	})
	t.deducted = min(t.cpu, time.Duration(written)*cost)
	s.total.add(t)
	return err
}

// etagOf asks the gateway until it sends an ETag: the first answers may come from upstream.
func etagOf(ctx context.Context, gw *gateway, spec requestSpec) (string, error) {
	for range 5 {
		resp, _, err := fetch(ctx, gw.server, spec)
		if err != nil {
			return "", err
		}
		if resp.etag != "" {
			return resp.etag, nil
		}
	}
	return "", errors.New("kubeweir sends no ETag")
}

func floorPath(r *Row, page int) string { return fmt.Sprintf("/%s/%d", r.Name, page) }

// storeOnFloor gives the floor the bytes that the gateway sends.
func (m *measurer) storeOnFloor(ctx context.Context, gw *server, r *Row, spec *requestSpec) error {
	c, err := dial(ctx, gw, 64<<10)
	if err != nil {
		return err
	}
	defer c.close()
	var body bytes.Buffer
	c.keep = &body
	unconditional := *spec
	unconditional.ifNoneMatch = ""
	next := gw.encode(unconditional)
	for page := 0; next != nil; page++ {
		body.Reset()
		resp, err := c.get(next, 200)
		if err != nil {
			return err
		}
		if err := m.bed.floor.store(ctx, floorPath(r, page), resp, body.Bytes()); err != nil {
			return err
		}
		next = nil
		if token := continueToken.FindSubmatch(resp.head); r.Kind == Pages && token != nil {
			next = gw.encode(requestSpec{path: "/api/v1/pods?limit=500&continue=" + string(token[1])})
		}
	}
	return nil
}
