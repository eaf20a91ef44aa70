package main

import (
	"context"
	"io"
	"log/slog"

	"k8s.io/klog/v2"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/serve"
)

// run starts s, lets it serve until ctx ends, and drains it.
func run(ctx context.Context, s *serve.Server, log *slog.Logger, stderr io.Writer) error {
	defer s.Close()
	if err := s.Start(ctx); err != nil {
		return err
	}
	s.Announce(stderr)
	<-ctx.Done()
	log.Info("draining")
	s.Drain()
	return nil
}

func newLogger(c config.Log, out io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.Level.Slog()}
	if c.Format == config.JSON {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

// quietLibraries lets what the libraries of Kubernetes log go the same way as
// everything else. They log to klog, of which there is one in a process.
func quietLibraries(log *slog.Logger) { klog.SetSlogLogger(log) }

func userAgent() string { return "kubeweir/" + buildVersion() }
