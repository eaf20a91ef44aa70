package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kubeweir/kubeweir/test/link"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// A scaled is a gateway in front of a synthetic API server.
type scaled struct {
	*gateway
	upstream *synthetic
	state    string     // folder of the gateway's saved state, or ""
	key      string     // file with the key that encrypts it, or ""
	link     *link.Link // the gateway's link to the upstream, or nil
}

// startScaled starts both, with as many pods as the row says. The gateway's cache is still empty.
func (m *measurer) startScaled(ctx context.Context, r *Row) (*scaled, error) {
	m.current = nil
	upstream, err := m.bed.startSynthetic(ctx, min(r.Objects, m.effort.objects))
	if err != nil {
		return nil, err
	}
	args, _ := r.gatewayArgs()
	s := &scaled{upstream: upstream}
	address := upstream.url
	if r.Uplink > 0 { // saved state is valid only for the same upstream address
		if s.link, err = link.Start(strings.TrimPrefix(upstream.url, "https://")); err != nil {
			s.close()
			return nil, err
		}
		address = s.link.URL()
	}
	if r.Saved {
		if s.state, err = os.MkdirTemp("", "kubeweir-bench-"); err != nil {
			s.close()
			return nil, err
		}
		args = append(args, "--state-dir", s.state)
		if r.Uplink > 0 {
			if s.key, err = writeKey(); err != nil {
				s.close()
				return nil, err
			}
			args = append(args, "--state-key-file", s.key, "--offline=allow")
		}
	}
	s.gateway, err = m.bed.startGatewayWith(ctx, realkube.GatewayOptions{Path: m.bed.binary, Upstream: address, ExtraArgs: args})
	if err != nil {
		s.close()
		return nil, err
	}
	m.current = &contest{kubeweir: s.gateway, rival: m.bed.apiserver}
	return s, nil
}

func (s *scaled) close() {
	if s.gateway != nil {
		s.process.Close()
	}
	if s.link != nil {
		s.link.Close()
	}
	s.upstream.close()
	if s.state != "" {
		_ = os.RemoveAll(s.state)
	}
	if s.key != "" {
		_ = os.Remove(s.key)
	}
}

// sync waits until the gateway's cache holds everything that its upstream has sent.
func (s *scaled) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	for {
		version, err := versionOf(ctx, s.server, "/api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dnone")
		if err == nil && s.upstream.rawBytes() > 0 && version == strconv.FormatInt(s.upstream.current(), 10) {
			return nil
		}
		if sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("the cache does not reach its upstream's version: %w", errors.Join(err, ctx.Err()))
		}
	}
}

// read reads and drops a response.
func (s *scaled) read(ctx context.Context, spec requestSpec) error {
	c, err := dial(ctx, s.server, 64<<10)
	if err != nil {
		return err
	}
	defer c.close()
	_, err = c.get(s.encode(spec), 200)
	return err
}

// rest returns the gateway's memory once it has been idle.
func (m *measurer) rest(ctx context.Context, s *scaled) (now, peak int64, err error) {
	if err := sleep(ctx, m.effort.settle); err != nil {
		return 0, 0, err
	}
	return residentMemory(s.pid)
}

// scaledMemory measures a row of kind Resident.
func (m *measurer) scaledMemory(ctx context.Context, r *Row) (*measured, error) {
	s, err := m.startScaled(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := errors.Join(s.sync(ctx), s.read(ctx, requestSpec{path: r.Path})); err != nil {
		return nil, err
	}
	now, peak, err := m.rest(ctx, s)
	if err != nil {
		return nil, err
	}
	out := &measured{kubeweirBytes: &now, raw: s.upstream.rawBytes()}
	out.notes = append(out.notes, fmt.Sprintf("raw JSON %.1f MB; kubeweir's peak was %.0f MB", mega(out.raw), mega(peak)))
	return out, m.heapProfile(ctx, r, s.gateway)
}

// growth measures a row of kind Growth. The gateway bounds its history by size as well as by age,
// so events may come faster than in reality. Lists in between keep rendered responses in use.
func (m *measurer) growth(ctx context.Context, r *Row) (*measured, error) {
	s, err := m.startScaled(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.sync(ctx); err != nil {
		return nil, err
	}
	const lists = 12
	var early int64
	samples := "after each twelfth"
	for k := range lists {
		for i := range m.effort.updates / lists {
			s.upstream.update(i * 7 % s.upstream.pods)
		}
		err := errors.Join(s.sync(ctx), s.read(ctx, requestSpec{path: "/api/v1/pods?resourceVersion=0", gzip: true}),
			s.read(ctx, requestSpec{path: "/api/v1/pods?resourceVersion=0", accept: tableType}))
		if err == nil && k+1 == lists/2 {
			early, _, err = m.rest(ctx, s)
		}
		if err != nil {
			return nil, err
		}
		now, _, _ := residentMemory(s.pid)
		samples += fmt.Sprintf(" %.0f", mega(now))
	}
	late, peak, err := m.rest(ctx, s)
	if err != nil {
		return nil, err
	}
	grown := late - early
	out := &measured{kubeweirBytes: &grown}
	out.notes = append(out.notes, fmt.Sprintf("%.0f MB after half of them, %.0f MB at the end, %.0f MB at most; %s", mega(early), mega(late), mega(peak), samples))
	return out, m.heapProfile(ctx, r, s.gateway)
}

// coldSync measures a row of kind ColdSync.
func (m *measurer) coldSync(ctx context.Context, r *Row) (*measured, error) {
	s, err := m.startScaled(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := m.quiet(ctx, s.pid); err != nil {
		return nil, err
	}
	out := &measured{}
	before, err := realkube.CPUTime(s.pid)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	err = m.profiled(ctx, r, func() error { return s.sync(ctx) })
	if err != nil {
		return nil, err
	}
	after, err := realkube.CPUTime(s.pid)
	out.kubeweir = tally{cpu: after - before, wall: time.Since(begin), bytes: s.upstream.rawBytes()}
	out.kubeweir.byMegabyte()
	out.notes = append(out.notes, fmt.Sprintf("%.0f MB in %s, %.0f MB a second of processor time", mega(s.upstream.rawBytes()),
		out.kubeweir.wall.Round(time.Millisecond), mega(s.upstream.rawBytes())/(after-before).Seconds()))
	return out, err
}

// byMegabyte makes megabytes the unit.
func (t *tally) byMegabyte() { t.count = max(1, t.bytes/1e6) }

// scaledList measures a row of kind ScaledList.
func (m *measurer) scaledList(ctx context.Context, r *Row) (*measured, error) {
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
	if err := m.quiet(ctx, s.pid); err != nil {
		return nil, err
	}
	out := &measured{}
	err = m.profiled(ctx, r, func() (err error) {
		out.kubeweir, err = sliceNow(ctx, s.server, limits{cpu: m.effort.gateway, requests: 2 * m.effort.requests},
			repeat(c, requestSpec{path: r.Path}))
		return err
	})
	out.kubeweir.byMegabyte()
	return out, err
}

// longWatching is the factor by which a row with Long is measured longer than others.
const longWatching = 4

// saved waits until the pods are on disk, if the gateway saves its state: the first save costs as
// much as minutes of updates.
func (s *scaled) saved(ctx context.Context) error {
	if s.state == "" {
		return nil
	}
	for {
		_, err := os.Stat(filepath.Join(s.state, "pods.v1.json.image"))
		if err == nil {
			return nil
		}
		if sleep(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("the pods were not saved: %w", errors.Join(err, ctx.Err()))
		}
	}
}

// scaledWatch measures a row of kind ScaledWatch.
func (m *measurer) scaledWatch(ctx context.Context, r *Row) (*measured, error) {
	s, err := m.startScaled(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.sync(ctx); err != nil {
		return nil, err
	}
	n := min(r.Clients, m.effort.watchers, s.upstream.pods)
	version := s.upstream.current()
	w, err := openWatchers(ctx, watchOptions{server: s.server, n: n, buffer: 8 << 10, request: func(i int) requestSpec {
		return requestSpec{path: fmt.Sprintf("/api/v1/pods?watch=1&resourceVersion=%d&labelSelector=%s%%3D%d", version, podLabel, i)}
	}})
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := errors.Join(s.saved(ctx), m.quiet(ctx, s.pid)); err != nil {
		return nil, err
	}
	out := &measured{}
	counts, err := s.counts(ctx)
	if err != nil {
		return nil, err
	}
	err = m.profiled(ctx, r, func() error {
		before, err := realkube.CPUTime(s.pid)
		if err != nil {
			return err
		}
		begin := time.Now()
		lasts := m.effort.labelWatching
		if r.Long {
			lasts *= longWatching
		}
		events := int(lasts.Seconds() * float64(r.Rate))
		for k := range events {
			if err := sleep(ctx, time.Until(begin.Add(time.Duration(k)*time.Second/time.Duration(r.Rate)))); err != nil {
				return err
			}
			s.upstream.update(k % n)
		}
		if out.kubeweir.count, err = w.await(ctx, int64(events)); err != nil {
			return err
		}
		after, err := realkube.CPUTime(s.pid)
		out.kubeweir.cpu, out.kubeweir.wall = after-before, time.Since(begin)
		out.kubeweir.closed, out.kubeweir.short = w.closed.Load(), int64(events)-out.kubeweir.count
		return err
	})
	if err != nil {
		return nil, err
	}
	out.noteWatches()
	after, err := s.counts(ctx)
	note := fmt.Sprintf("%.0f garbage collections", after.collections-counts.collections)
	if r.Saved {
		note += fmt.Sprintf("; saved %.0f times, %.2f MB on disk", after.saves-counts.saves, (after.written-counts.written)/1e6)
	}
	out.notes = append(out.notes, note)
	return out, err
}

// counts are metrics that explain the gateway's processor time.
type counts struct{ collections, saves, written float64 }

func (s *scaled) counts(ctx context.Context) (counts, error) {
	const collections, saves, written = "go_gc_duration_seconds", "kubeweir_state_saves_total", "kubeweir_state_written_bytes_total"
	m, err := s.process.Families(ctx, collections, saves, written)
	if err != nil {
		return counts{}, err
	}
	c := counts{saves: m.Sum(saves, nil), written: m.Sum(written, nil)}
	for _, one := range m[collections].GetMetric() {
		c.collections += float64(one.GetSummary().GetSampleCount())
	}
	return c, nil
}
