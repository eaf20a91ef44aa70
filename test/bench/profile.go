package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// profileTime is how long a row runs while it is profiled.
const profileTime = 10 * time.Second

// profiled calls f. When rows are profiled, it writes the gateway's CPU profile over profileTime.
func (m *measurer) profiled(ctx context.Context, r *Row, f func() error) error {
	if m.profile == "" {
		return f()
	}
	url := m.current.kubeweir.process.AdminURL() + fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(profileTime.Seconds()))
	written := make(chan error, 1)
	go func() { written <- download(ctx, url, filepath.Join(m.profile, r.Name+".cpu.pprof")) }()
	err := f()
	if e := <-written; err == nil {
		err = e
	}
	return err
}

// heapProfile writes the gateway's heap profile when rows are profiled.
func (m *measurer) heapProfile(ctx context.Context, r *Row, g *gateway) error {
	if m.profile == "" {
		return nil
	}
	return download(ctx, g.process.AdminURL()+"/debug/pprof/heap", filepath.Join(m.profile, r.Name+".heap.pprof"))
}

func download(ctx context.Context, url, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %.300s", url, resp.Status, b)
	}
	return os.WriteFile(file, b, 0o644)
}
