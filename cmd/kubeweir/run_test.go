package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app"
)

// TestEndsWithScheduler checks that the process ends if the scheduler, whose name is taken, fails.
func TestEndsWithScheduler(t *testing.T) {
	name, err := cache.NewInformerName("kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	defer name.Release()
	c := config.DefaultStandalone()
	c.Listen, c.AdminListen, c.Shutdown.Drain, c.Scheduler = "127.0.0.1:0", "", 0, true
	var stderr bytes.Buffer
	log := slog.New(slog.NewTextHandler(&stderr, nil))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := app.NewStandalone(ctx, c, app.StandaloneOptions{NoDataDir: true, UserAgent: userAgent(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	err = run(ctx, s.Server, s.Failed(), log, &bytes.Buffer{})
	if want := `scheduler: informer name "kube-scheduler" is already registered`; err == nil || err.Error() != want || !strings.Contains(stderr.String(), "a part of the server failed") {
		t.Errorf("%v; want %s; log:\n%s", err, want, stderr.String())
	}
}
