package bench

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// changedOf means that one of that many pods changes while the gateway is stopped.
const changedOf = 200

// warmStart measures a row of kind WarmStart.
func (m *measurer) warmStart(ctx context.Context, r *Row) (*measured, error) {
	s, err := m.startScaled(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.sync(ctx); err != nil {
		return nil, err
	}
	out := &measured{raw: s.upstream.rawBytes()}
	for range m.rounds() {
		if err := s.process.Stop(ctx); err != nil {
			return nil, err
		}
		size, err := sizeOf(s.state)
		if err != nil {
			return nil, err
		}
		for i := range s.upstream.pods / changedOf {
			s.upstream.update(i * 7 % s.upstream.pods)
		}
		var ready time.Duration
		if err := out.kubeweir.timed(func() error {
			begin := time.Now()
			if err := s.process.Start(ctx); err != nil {
				return err
			}
			ready = time.Since(begin)
			return s.sync(ctx)
		}); err != nil {
			return nil, err
		}
		s.pid, s.pids = s.process.PID(), []int{s.process.PID()}
		metrics, err := s.process.Families(ctx, "kubeweir_upstream_response_bytes_total")
		if err != nil {
			return nil, err
		}
		cpu, err := realkube.CPUTime(s.pid)
		if err != nil {
			return nil, err
		}
		read := metrics.Sum("kubeweir_upstream_response_bytes_total", nil)
		out.notes = append(out.notes, fmt.Sprintf("%s, ready after %s, %s of processor time; %.2f %% of the JSON read, %.1f %% on disk",
			out.kubeweir.latencies[len(out.kubeweir.latencies)-1].Round(time.Millisecond), ready.Round(time.Millisecond), cpu,
			100*read/float64(out.raw), 100*float64(size)/float64(out.raw)))
	}
	return out, nil
}

// sizeOf returns the total size of the files in a folder.
func sizeOf(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}
