package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// fanOut measures a row of kind FanOut or LabelWatch. It measures in turn kube-apiserver without
// watchers (the cost of the writes alone), kube-apiserver with the watchers, kubeweir with the
// watchers, and the floor.
func (m *measurer) fanOut(ctx context.Context, r *Row) (*measured, error) {
	c, err := m.contestFor(ctx, r)
	if err != nil {
		return nil, err
	}
	defer c.close()
	gw := c.kubeweir
	out := &measured{}
	ws := m.eventsOf(r)
	for range min(2, m.rounds()) {
		if m.profile == "" {
			var cost time.Duration
			if m.deducts(c.rival) {
				if cost, err = m.writeCost(ctx, c.rival, ws); err != nil {
					return nil, err
				}
			}
			t, err := m.fanOutSlice(ctx, r, c.rival, ws)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.rival.name, err)
			}
			t.deducted = min(t.cpu, time.Duration(ws.n)*cost)
			out.apiserver.add(t)
		}
		t, err := m.fanOutSlice(ctx, r, gw.server, ws)
		if err != nil {
			return nil, fmt.Errorf("kubeweir: %w", err)
		}
		out.kubeweir.add(t)
		if m.profile == "" && r.Stalled == 0 {
			if t, err = m.fanOutSlice(ctx, r, m.bed.floor.server, ws); err != nil {
				return nil, fmt.Errorf("floor: %w", err)
			}
			out.floor.add(t)
		}
	}
	out.noteWatches()
	return out, nil
}

// eventsOf returns the writes of one slice.
func (m *measurer) eventsOf(r *Row) writes {
	watching := m.effort.watching
	if r.Kind == LabelWatch {
		watching = m.effort.labelWatching
	}
	if m.profile != "" {
		watching = profileTime
	}
	if r.Rate == 0 {
		// As fast as the server can: many writes in flight, held back while watchers lag.
		return writes{n: m.effort.fastEvents, workers: fastWorkers}
	}
	// With one writer, the k-th event of every watcher comes from the k-th write.
	return writes{n: max(1, int(watching.Seconds()*float64(r.Rate))), rate: r.Rate, workers: 1}
}

// fanOutSlice opens watchers, writes, and waits until they have received all their events.
func (m *measurer) fanOutSlice(ctx context.Context, r *Row, s *server, ws writes) (tally, error) {
	var t tally
	n := min(r.Clients, m.effort.watchers)
	if r.Kind == LabelWatch {
		n = min(n, m.effort.pods) // each watcher has a pod
	}
	// When the k-th write, or the last write to a pod, began, in nanoseconds since base.
	begun, base := make([]atomic.Int64, max(ws.n, m.effort.pods)+1), time.Now()
	options, err := m.watchOptionsFor(ctx, r, s, n)
	if err != nil {
		return t, err
	}
	options.begun = func(watcher, k int) time.Time {
		if r.Kind == LabelWatch {
			k = watcher
		}
		if ws.workers > 1 || watcher%20 != 0 && r.Kind != LabelWatch || k >= len(begun) {
			return time.Time{}
		}
		return base.Add(time.Duration(begun[k].Load()))
	}
	w, closeAll, err := m.openRow(ctx, r, options)
	if err != nil {
		return t, err
	}
	defer closeAll()
	if err := m.quiet(ctx, s.pids...); err != nil {
		return t, err
	}
	due := int64(ws.n)
	if r.Kind == FanOut {
		due *= int64(n)
	}
	writer := m.writer(m.bed.apiserver)
	if r.Kind == LabelWatch {
		writer.pods = n // the other pods have no watcher
	} else if r.Rate == 0 {
		writer.hold = w.keepUp
	}
	var written atomic.Int64
	writer.before = func(pod int, at time.Time) {
		k := int(written.Add(1)) - 1
		if r.Kind == LabelWatch {
			k = pod
		}
		begun[k].Store(int64(at.Sub(base)))
	}
	err = m.profiled(ctx, r, func() error {
		before, err := realkube.CPUTime(s.pids...)
		if err != nil {
			return err
		}
		begin := time.Now()
		if s.name == "floor" {
			err = m.emit(ctx, r, s, ws, n, writer.before)
		} else {
			_, err = writer.run(ctx, ws)
		}
		if err != nil {
			return err
		}
		if t.count, err = w.await(ctx, due); err != nil {
			return err
		}
		t.wall = time.Since(begin)
		after, err := realkube.CPUTime(s.pids...)
		t.cpu, t.closed, t.short, t.bytes = after-before, w.closed.Load(), due-t.count, w.bytes.Load()
		return err
	})
	w.close()
	t.latencies = w.latencies()
	return t, err
}

// openRow opens the watchers of a row and its stalled watches, which stop reading.
func (m *measurer) openRow(ctx context.Context, r *Row, o watchOptions) (*watchers, func(), error) {
	stalled := min(r.Stalled, m.effort.watchers)
	if r.Over == HTTP2 {
		// Half of the stalled watches are streams next to live ones; the other half have their own
		// connections.
		o.stuck = stalled / 2 * max(1, o.perConn) / o.n
		stalled -= stalled / 2
	}
	w, err := openWatchers(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	closeStalled, err := openStalled(ctx, o, stalled)
	if err != nil {
		w.close()
		return nil, nil, fmt.Errorf("stalled watches: %w", err)
	}
	return w, func() { w.close(); closeStalled() }, nil
}

// cborMark begins an event in CBOR: the tag of self-described CBOR, whose bytes are invalid UTF-8
// and therefore never occur in text, and the head of a map with two entries. The object in the
// event has the tag too, but more entries.
const cborMark = "\xd9\xd9\xf7\xa2"

// watchOptionsFor returns the options of a row's watches.
func (m *measurer) watchOptionsFor(ctx context.Context, r *Row, s *server, n int) (watchOptions, error) {
	o := watchOptions{server: s, n: n, over: r.Over, perConn: r.PerConnection, buffer: 32 << 10}
	if r.Kind == LabelWatch {
		o.buffer = 8 << 10
	}
	if r.Accept == cborType {
		o.mark = cborMark
	}
	if s.name == "floor" {
		o.request = func(int) requestSpec { return requestSpec{path: "/watch"} }
		return o, nil
	}
	version, err := m.bed.version(ctx)
	if err != nil {
		return o, err
	}
	o.request = func(i int) requestSpec {
		path := "/api/v1/pods?watch=1&resourceVersion=" + version
		if r.Kind == LabelWatch {
			path += fmt.Sprintf("&labelSelector=%s%%3D%d", podLabel, i)
		}
		return requestSpec{path: path, accept: r.Accept}
	}
	return o, nil
}

// emit makes the floor send the events that the writer would cause on kube-apiserver.
func (m *measurer) emit(ctx context.Context, r *Row, s *server, ws writes, n int, before func(int, time.Time)) error {
	_, pod, err := fetch(ctx, m.bed.apiserver, requestSpec{path: podPath(0), accept: r.Accept})
	if err != nil {
		return err
	}
	event := append([]byte(cborMark), pod...) // about 20 bytes shorter than an event
	if r.Accept == "" {
		event = fmt.Appendf(nil, "{\"type\":\"MODIFIED\",\"object\":%s}\n", trimNewline(pod))
	}
	c, err := dial(ctx, s, 16<<10)
	if err != nil {
		return err
	}
	defer c.close()
	begin := time.Now()
	for k := range ws.n {
		if ws.rate > 0 {
			if err := sleep(ctx, time.Until(begin.Add(time.Duration(k)*time.Second/time.Duration(ws.rate)))); err != nil {
				return err
			}
		}
		path := "/emit"
		if r.Kind == LabelWatch {
			path = fmt.Sprintf("/emit?to=%d", k%n)
		}
		before(k%n, time.Now())
		if _, err := c.get(s.encode(requestSpec{method: "POST", path: path, body: event}), 200); err != nil {
			return err
		}
	}
	return nil
}

func trimNewline(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	return b
}
