package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// TestKeptOfHungDisk: a disk that does not answer who asks what was kept holds the end of a cluster for a bounded time.
func TestKeptOfHungDisk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log strings.Builder
		registry := prometheus.NewRegistry()
		c := newCluster(slog.New(slog.NewTextHandler(&log, nil)), registry, registry, policy.NewBlocked(nil))
		one := []checkpoint.Saved{{}}
		if got := c.readKept(t.Context(), func(context.Context) []checkpoint.Saved { return one }); len(got) != 1 {
			t.Errorf("read %v", got)
		}

		ctx, cancel := context.WithCancel(t.Context())
		answers := make(chan struct{})
		c.panics.Keep(&c.background, "background", func() {
			if got := c.readKept(ctx, func(context.Context) []checkpoint.Saved { <-answers; return one }); got != nil {
				t.Errorf("read %v after the end", got)
			}
		})
		synctest.Wait()
		cancel()
		c.background.Wait()
		if strings.Count(log.String(), "the disk does not answer") != 1 {
			t.Errorf("the log: %s", log.String())
		}
		close(answers)
	})
}
