package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/serve"
)

// runGateway is `kubeweir gateway`: it serves until ctx ends, then drains.
func runGateway(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := config.Parse(args)
	if errors.Is(err, config.ErrHelp) {
		_, err = fmt.Fprintf(stdout, "Usage: kubeweir gateway [flags]\n\n%s", config.Help())
		return err
	}
	if err != nil {
		return usageError{err}
	}
	log := newLogger(cfg.Log, stderr)
	outlivePanics()
	s, err := serve.NewGateway(cfg, userAgent(), log)
	if err != nil {
		return err
	}
	return run(ctx, s, log, stderr)
}
