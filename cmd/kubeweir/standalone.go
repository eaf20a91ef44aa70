package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/serve"
)

// runStandalone is `kubeweir standalone`: it serves until ctx ends, then drains.
func runStandalone(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := config.ParseStandalone(args)
	if errors.Is(err, config.ErrHelp) {
		_, err = fmt.Fprintf(stdout, "Usage: kubeweir standalone [flags]\n\n%s", config.HelpStandalone())
		return err
	}
	if err != nil {
		return usageError{err}
	}
	log := newLogger(cfg.Log, stderr)
	outlivePanics()
	quietLibraries(log)
	s, err := serve.NewStandalone(ctx, cfg, serve.StandaloneOptions{UserAgent: userAgent(), Logger: log})
	if err != nil {
		return err
	}
	return run(ctx, s, log, stderr)
}
