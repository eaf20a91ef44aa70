package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// requests measures a row of kind Requests, Pages or WatchList.
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
	spec := requestSpec{path: path, accept: r.Accept, gzip: r.Gzip, watchList: r.Kind == WatchList}
	if r.Conditional {
		if spec.ifNoneMatch, err = etagOf(ctx, gw, spec); err != nil {
			return nil, err
		}
	}
	out := &measured{}
	sides, err := m.sides(ctx, r, c, out)
	if err != nil {
		return nil, err
	}
	if r.hasFloor() && m.profile == "" {
		if err := m.storeOnFloor(ctx, gw.server, r, &spec); err != nil {
			return nil, err
		}
	}
	for _, s := range sides {
		if err := s.open(ctx, r, spec); err != nil {
			return nil, fmt.Errorf("%s: %w", s.server.name, err)
		}
		defer s.caller.close()
	}
	for range m.rounds() {
		for _, s := range sides {
			if err := m.requestSlice(ctx, r, s); err != nil {
				return nil, fmt.Errorf("%s: %w", s.server.name, err)
			}
		}
	}
	if !r.Conditional && !r.Gzip {
		out.compareBytes(r)
	}
	if err := m.noteShards(ctx, r, gw.server, spec, out); err != nil {
		return nil, err
	}
	out.noteOwn(r)
	for _, s := range sides {
		if r.Kind == WatchList && r.Gzip && s.encoding != "gzip" {
			out.notes = append(out.notes, s.server.name+": not compressed")
		}
	}
	return out, nil
}

// sides returns the servers that a row measures.
func (m *measurer) sides(ctx context.Context, r *Row, c *contest, out *measured) ([]*side, error) {
	gateway := &side{server: m.counted(c.kubeweir.server, r), total: &out.kubeweir, cpu: m.effort.gateway, warmUp: 3}
	if m.profile != "" {
		return []*side{gateway}, nil
	}
	all := []*side{{server: c.rival, total: &out.apiserver, cpu: m.effort.apiserver, warmUp: 2}, gateway}
	if r.nginxServes() {
		n, err := m.bed.startedNginx(ctx)
		if err != nil {
			return nil, err
		}
		if n != nil {
			all = append(all, &side{server: n.server, total: &out.nginx, cpu: m.effort.gateway, warmUp: 3})
		}
	}
	if r.hasFloor() {
		all = append(all, &side{server: m.bed.floor.server, total: &out.floor, cpu: m.effort.floor, warmUp: 1})
	}
	return all, nil
}

// A side is one of the servers of a row, with the client that calls it.
type side struct {
	server   *server
	total    *tally
	cpu      time.Duration // processor time to spend over all rounds
	warmUp   int           // requests before the first slice
	caller   caller
	exchange exchange
	encoding string        // Content-Encoding of the responses
	each     time.Duration // approximate processor time of a request
}

func (s *side) open(ctx context.Context, r *Row, spec requestSpec) (err error) {
	if r.Kind == WatchList && r.protocol() == HTTP1 {
		s.caller = &listWatcher{ctx: ctx, server: s.server}
	} else if s.caller, err = dialOver(ctx, r.Over, s.server); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.caller.close()
		}
	}()
	specs := specsOf(r, spec)
	if s.server.name == "floor" {
		for i := range specs {
			specs[i].path = floorPath(r, i)
		}
	}
	s.exchange = repeat(s.caller, specs...)
	if r.Kind == Pages {
		s.exchange = s.pages(r, specs[0])
	}
	before, err := realkube.CPUTime(s.server.pids...)
	if err != nil {
		return err
	}
	n := s.warmUp * len(specs)
	for range n {
		resp, err := once(s.exchange)
		if err != nil {
			return err
		}
		s.encoding = resp.encoding
	}
	after, err := realkube.CPUTime(s.server.pids...)
	s.each = (after - before) / time.Duration(n)
	return err
}

// specsOf returns the requests of a row: one, or one per shard.
func specsOf(r *Row, spec requestSpec) []requestSpec {
	var out []requestSpec
	for _, path := range r.paths(spec.path) {
		one := spec
		one.path = path
		out = append(out, one)
	}
	return out
}

// noteShards notes how much of the list the largest shard contains.
func (m *measurer) noteShards(ctx context.Context, r *Row, gw *server, spec requestSpec, out *measured) error {
	if r.Shards == 0 {
		return nil
	}
	var all, most int64
	for _, spec := range specsOf(r, spec) {
		resp, _, err := fetch(ctx, gw, spec)
		if err != nil {
			return err
		}
		all, most = all+resp.bytes, max(most, resp.bytes)
	}
	out.notes = append(out.notes, fmt.Sprintf("%d shards have %d bytes, of the largest %d", r.Shards, all, most))
	return nil
}

// continueToken matches the token in the metadata of a list.
var continueToken = regexp.MustCompile(`"continue":"([^"]+)"`)

// paged is an exchange that reads the next page, and the first page after the last one.
type paged struct {
	caller
	next requestSpec
	// after returns the request of the page that a token leads to. The token is empty after the
	// last page.
	after func(token []byte) requestSpec
}

func (s *side) pages(r *Row, first requestSpec) *paged {
	page := 0
	return &paged{s.caller, first, func(token []byte) requestSpec {
		switch {
		case token == nil:
			page = 0
			return first
		case s.server.name == "floor":
			page++
			return requestSpec{path: floorPath(r, page)}
		}
		return requestSpec{path: "/api/v1/pods?limit=500&continue=" + string(token)}
	}}
}

func (p *paged) begin() error { return p.send(p.next) }

func (p *paged) end() (response, error) {
	resp, err := received(p.caller, p.next, 200)
	if err != nil {
		return resp, err
	}
	var token []byte
	if m := continueToken.FindSubmatch(resp.head); m != nil {
		token = m[1]
	}
	p.next = p.after(token)
	return resp, nil
}

// limitsOf returns the limits of a side's slice.
func (m *measurer) limitsOf(r *Row, s *side) (limits, error) {
	lim := limits{cpu: s.cpu / time.Duration(m.rounds()), requests: m.effort.requests, inFlight: r.inFlight(), cycle: r.Shards}
	if m.profile != "" {
		lim = limits{requests: 1, wall: profileTime + time.Second, inFlight: r.inFlight()}
	}
	if l, ok := s.caller.(*listWatcher); ok && m.profile == "" {
		const most = 64 // connections opened in advance
		lim.exactly, lim.requests = true, min(most, max(lim.requests, int(lim.cpu/max(s.each, time.Millisecond))))
		return lim, l.open(lim.requests)
	}
	return lim, nil
}

// requestSlice measures one server for a while and subtracts what concurrent updates cost
// kube-apiserver.
func (m *measurer) requestSlice(ctx context.Context, r *Row, s *side) error {
	lim, err := m.limitsOf(r, s)
	if err != nil {
		return err
	}
	measure := func(ctx context.Context) (t tally, err error) {
		err = m.profiled(ctx, r, func() (err error) {
			t, err = sliceNow(ctx, s.server, lim, s.exchange)
			return err
		})
		return t, err
	}
	if r.Churn == 0 || s.server.name == "floor" {
		if err := m.quiet(ctx, s.server.pids...); err != nil {
			return err
		}
		t, err := measure(ctx)
		if err == nil {
			err = m.deductBackground(ctx, r, s.server, &t)
		}
		s.total.add(t)
		return err
	}
	var cost time.Duration
	if m.deducts(s.server) {
		n := max(1, int(m.effort.watching.Seconds()*float64(r.Churn)))
		if cost, err = m.writeCost(ctx, m.bed.apiserver, writes{n: n, rate: r.Churn, workers: churnWorkers}); err != nil {
			return err
		}
	}
	var t tally
	written, err := m.churning(ctx, m.bed.apiserver, r.Churn, func() (err error) {
		t, err = measure(ctx)
		return err
	})
	t.deducted = min(t.cpu, time.Duration(written)*cost)
	s.total.add(t)
	return err
}

// etagOf sends requests to the gateway until it returns an ETag: the first responses may come from
// the upstream.
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

// storeOnFloor uploads the gateway's response to the floor.
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
	var left [][]byte
	for _, spec := range specsOf(r, unconditional) {
		left = append(left, gw.encode(spec))
	}
	for page := 0; len(left) > 0; page++ {
		next := left[0]
		left = left[1:]
		body.Reset()
		resp, err := c.get(next, 200)
		if err != nil {
			return err
		}
		if err := m.bed.floor.store(ctx, floorPath(r, page), resp, body.Bytes()); err != nil {
			return err
		}
		if token := continueToken.FindSubmatch(resp.head); r.Kind == Pages && token != nil {
			left = append(left, gw.encode(requestSpec{path: "/api/v1/pods?limit=500&continue=" + string(token[1])}))
		}
	}
	return nil
}
