package bench

import (
	"context"
	"fmt"
)

// resident measures a row of kind Resident: the memory of a fresh gateway after it has served the
// list, and kube-apiserver's.
func (m *measurer) resident(ctx context.Context, r *Row) (*measured, error) {
	out := &measured{}
	g, err := m.bed.startGateway(ctx, m.bed.binary)
	if err != nil {
		return nil, err
	}
	defer g.process.Close()
	path, err := m.bed.path(ctx, r, g)
	if err != nil {
		return nil, err
	}
	for _, s := range []*server{m.bed.apiserver, g.server} {
		// The gateway may forward its first list.
		for range 2 {
			if _, _, err := fetch(ctx, s, requestSpec{path: path}); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	if err := sleep(ctx, m.effort.settle); err != nil {
		return nil, err
	}
	if err := m.heapProfile(ctx, r, g); err != nil {
		return nil, err
	}
	kube, _, err := residentMemory(m.bed.apiserver.pid)
	if err != nil {
		return nil, err
	}
	weir, peak, err := residentMemory(g.pid)
	out.apiserverBytes, out.kubeweirBytes = &kube, &weir
	out.notes = append(out.notes, fmt.Sprintf("raw JSON %.1f MB; kubeweir's peak was %.0f MB", mega(m.bed.rawBytes), mega(peak)))
	return out, err
}

// idleWatches measures a row of kind IdleWatch: the memory added by watches without events.
func (m *measurer) idleWatches(ctx context.Context, r *Row) (*measured, error) {
	out := &measured{}
	g, err := m.bed.startGateway(ctx, m.bed.binary, "--insecure-listen=127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer g.process.Close()
	n := min(r.Clients, m.effort.watchers)
	s := g.server
	if r.Plaintext {
		if s = g.plaintext; s == nil {
			return nil, fmt.Errorf("the gateway prints no plaintext address:\n%s", g.process.Log())
		}
	}
	weir, err := m.idleMemory(ctx, r, s, func() error { return m.heapProfile(ctx, r, g) })
	if err != nil {
		return nil, fmt.Errorf("kubeweir: %w", err)
	}
	out.kubeweirBytes = &weir
	if r.Plaintext || m.profile != "" {
		return out, nil
	}
	kube, err := m.idleMemory(ctx, r, m.bed.apiserver, nil)
	if err != nil {
		return nil, fmt.Errorf("kube-apiserver: %w", err)
	}
	out.apiserverBytes = &kube
	out.notes = append(out.notes, fmt.Sprintf("%d open; kube-apiserver's heap may have had room for them", n))
	if m.effort.restart {
		// Later rows get a new gateway process, too: a heap that has grown is collected less often.
		return out, m.bed.restart(ctx)
	}
	return out, nil
}

// idleMemory returns the memory per watch, or per connection, of a server whose cache holds the
// pods.
func (m *measurer) idleMemory(ctx context.Context, r *Row, s *server, while func() error) (int64, error) {
	n := min(r.Clients, m.effort.watchers)
	for range 2 {
		if _, _, err := fetch(ctx, s, requestSpec{path: "/api/v1/pods?resourceVersion=0"}); err != nil {
			return 0, err
		}
	}
	if err := sleep(ctx, m.effort.settle); err != nil {
		return 0, err
	}
	before, _, err := residentMemory(s.pid)
	if err != nil {
		return 0, err
	}
	w, err := m.openIdle(ctx, r, s, n)
	if err != nil {
		return 0, err
	}
	defer w.close()
	if err := sleep(ctx, m.effort.settle); err != nil {
		return 0, err
	}
	if while != nil {
		if err := while(); err != nil {
			return 0, err
		}
	}
	after, _, err := residentMemory(s.pid)
	if closed := w.closed.Load(); err == nil && closed > 0 {
		err = fmt.Errorf("%d of %d idle watches were closed", closed, n)
	}
	return (after - before) / int64(n), err
}

// openIdle opens watches without events, or connections without a watch.
func (m *measurer) openIdle(ctx context.Context, r *Row, s *server, n int) (*watchers, error) {
	version, err := m.bed.version(ctx)
	if err != nil {
		return nil, err
	}
	o := watchOptions{server: s, n: n, over: r.Over, perConn: r.PerConnection, buffer: 512}
	if r.Kind != IdleConn {
		spec := requestSpec{path: "/api/v1/pods?watch=1&allowWatchBookmarks=1&resourceVersion=" + version}
		o.request = func(int) requestSpec { return spec }
	}
	return openWatchers(ctx, o)
}

func mega(bytes int64) float64 { return float64(bytes) / 1e6 }
