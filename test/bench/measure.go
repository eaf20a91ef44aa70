package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// measured holds the measurements of a row.
type measured struct {
	apiserver, kubeweir, nginx, floor tally
	// The servers' memory in rows of memory; nil if not measured.
	apiserverBytes, kubeweirBytes *int64
	// raw is the size of all pods as JSON, if they are not the testbed's.
	raw   int64
	notes []string
}

// A measurer measures rows on a testbed, one at a time.
type measurer struct {
	bed     *testbed
	effort  effort
	profile string // folder for profiles; empty to measure
	against string // path of the rival's program; empty for kube-apiserver
	written atomic.Int64
	current *contest // the row measured now or last
	// background is the share of time during which an idle kube-apiserver uses the processor; nil
	// until first needed.
	background *float64
}

// measure measures one row.
func (m *measurer) measure(ctx context.Context, r *Row) (*measured, error) {
	kinds := map[Kind]func(context.Context, *Row) (*measured, error){
		Requests: m.requests, Pages: m.requests, WatchList: m.requests, Informers: m.informers, Burst: m.bursts,
		FanOut: m.fanOut, LabelWatch: m.fanOut, Tabs: m.tabs, Write: m.forwarded,
		Resident: m.resident, IdleWatch: m.idleWatches, IdleConn: m.idleWatches,
		Start: m.starts, StoreMemory: m.storeMemory, Create: m.creates,
	}
	if r.Objects > 0 {
		kinds = map[Kind]func(context.Context, *Row) (*measured, error){
			Resident: m.scaledMemory, ColdSync: m.coldSync, WarmStart: m.warmStart, Restart: m.restarts, UplinkStart: m.uplinkStart,
			Growth: m.growth, ScaledList: m.scaledList, ScaledWatch: m.scaledWatch, Tabs: m.scaledTabs,
			Queries: m.queries, Visible: m.visible,
		}
	}
	f, ok := kinds[r.Kind]
	if !ok {
		return nil, fmt.Errorf("row %s: unknown kind %q", r.Name, r.Kind)
	}
	out, err := f(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("row %s: %w", r.Name, err)
	}
	return out, nil
}

func (m *measurer) rounds() int {
	if m.profile != "" {
		return 1
	}
	return m.effort.rounds
}

func (m *measurer) writer(s *server) *writer {
	return &writer{server: s, pods: m.effort.pods, last: &m.written}
}

// A contest is the two servers that a row compares.
type contest struct {
	kubeweir *gateway
	// rival is kube-apiserver or another build of kubeweir (Options.Against).
	rival *server
	// closers close what only this row uses.
	closers []func()
}

func (c *contest) close() {
	for _, f := range c.closers {
		f()
	}
}

// contestFor starts the servers that a row compares, unless they are running. The caller closes it.
func (m *measurer) contestFor(ctx context.Context, r *Row) (_ *contest, err error) {
	if err := m.bed.common(ctx, m.against); err != nil {
		return nil, err
	}
	c := &contest{kubeweir: m.bed.gateway, rival: m.bed.apiserver}
	if m.bed.rival != nil {
		c.rival = m.bed.rival.server
	}
	if args, own := r.gatewayArgs(); own {
		if c.kubeweir, err = m.ownGateway(ctx, c, m.bed.binary, args); err == nil && m.against != "" {
			var rival *gateway
			if rival, err = m.ownGateway(ctx, c, m.against, args); err == nil {
				c.rival = rival.server
			}
		}
		if err != nil {
			c.close()
			return nil, err
		}
	}
	if c.rival != m.bed.apiserver {
		c.rival = m.counted(c.rival, r)
	}
	m.current = c
	return c, nil
}

// gatewayArgs returns the flags of a row's own gateway, and whether it needs one.
func (r *Row) gatewayArgs() (args []string, own bool) {
	if r.Session {
		args = append(args, "--consistency=session")
	}
	if r.WithoutManagedFields {
		args = append(args, "--drop-managed-fields=pods")
	}
	if r.Coalesced {
		args = append(args, "--coalesce=500ms", "--watch-bytes-per-second=95k")
	}
	return args, r.Own || len(args) > 0
}

// ownGateway starts a gateway that ends with c.
func (m *measurer) ownGateway(ctx context.Context, c *contest, binary string, args []string) (*gateway, error) {
	g, err := m.bed.startGateway(ctx, binary, args...)
	if err != nil {
		return nil, err
	}
	c.closers = append(c.closers, g.process.Close)
	// The first list fills its cache.
	for range 3 {
		if _, _, err := fetch(ctx, g.server, requestSpec{path: "/api/v1/pods?resourceVersion=0"}); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// deducts reports whether the writes themselves cost the server processor time: only kube-apiserver
// executes them.
func (m *measurer) deducts(s *server) bool { return s == m.bed.apiserver }

// counted returns s, with the upstream's processor time included if the row asks for it.
func (m *measurer) counted(s *server, r *Row) *server {
	if !r.Upstream {
		return s
	}
	both := *s
	both.pids = append([]int{s.pid}, m.bed.apiserver.pids...)
	return &both
}

// compareBytes notes if the servers do not send the same amount.
func (d *measured) compareBytes(r *Row) {
	if d.apiserver.count == 0 || d.kubeweir.count == 0 {
		return
	}
	a := float64(d.apiserver.bytes) / float64(d.apiserver.count)
	b := float64(d.kubeweir.bytes) / float64(d.kubeweir.count)
	if r.drops() {
		d.notes = append(d.notes, fmt.Sprintf("kube-apiserver 1.37 does not support drop and sends the whole objects, %.0f bytes; kubeweir %.0f", a, b))
	} else if a > 1.01*b || b > 1.01*a {
		d.notes = append(d.notes, fmt.Sprintf("bytes differ: kube-apiserver %.0f, kubeweir %.0f", a, b))
	}
}

// noteOwn notes kubeweir's own share of the processor time where the upstream's is included.
func (d *measured) noteOwn(r *Row) {
	if n := time.Duration(d.kubeweir.count); r.Upstream && n > 0 {
		d.notes = append(d.notes, fmt.Sprintf("of kubeweir's figure %s are its own and %s the upstream's",
			(d.kubeweir.own/n).Round(10*time.Microsecond), ((d.kubeweir.cpu-d.kubeweir.own-d.kubeweir.deducted)/n).Round(10*time.Microsecond)))
	}
}

// noteWatches notes watches that ended early or missed events.
func (d *measured) noteWatches() {
	for _, s := range []struct {
		name string
		t    *tally
	}{{"kube-apiserver", &d.apiserver}, {"kubeweir", &d.kubeweir}, {"the floor", &d.floor}} {
		if s.t.closed > 0 || s.t.short > 0 {
			d.notes = append(d.notes, fmt.Sprintf("%s ended %d watches and left out %d events", s.name, s.t.closed, s.t.short))
		}
	}
}
