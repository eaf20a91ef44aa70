package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app"
)

// newGateway is `kubeweir gateway`.
func newGateway() *cobra.Command {
	flags := config.GatewayFlags()
	c := &cobra.Command{
		Use:   "gateway",
		Short: "Serve a cluster through a cache.",
		Long: `Serves gets, lists and watches from a cache, which one list and one watch per resource keep
current. The cluster authorizes each request. Other requests are forwarded. Clients keep their
credentials; they need the gateway's address and its CA. When it is ready, the gateway prints one
line to stderr. Without --tls-cert-file it generates a CA and a certificate, and prints the
KUBECONFIG to export. On SIGTERM it drains and exits.`,
		Example: `  # On this machine, in front of the cluster of the current context.
  kubeweir gateway --kubeconfig $HOME/.kube/config

  # As a sidecar: local programs share the gateway's identity and need no credentials.
  kubeweir gateway --kubeconfig $HOME/.kube/config --listen "" --insecure-listen 127.0.0.1:8080

  # With a configuration file, as 'kubeweir config defaults gateway' prints it.
  kubeweir gateway --kubeconfig $HOME/.kube/config --config gateway.yaml`,
		Args: func(_ *cobra.Command, args []string) error { return asUsage(flags.CheckArgs(args)) },
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := flags.Load()
			if err != nil {
				return usageError{err}
			}
			return runGateway(c.Context(), cfg, flags, c.ErrOrStderr())
		},
	}
	c.Flags().AddFlagSet(flags.Set())
	return c
}

// runGateway serves until ctx ends, then drains. flags are the flags that cfg was read from.
func runGateway(ctx context.Context, cfg *config.Gateway, flags *config.Flags[*config.Gateway], stderr io.Writer) error {
	log, level := newLogger(cfg.Log, stderr)
	outlivePanics()
	s, err := app.NewGateway(cfg, userAgent(), log)
	if err != nil {
		return err
	}
	s.FollowConfig(app.ConfigSource{File: flags.File(), Load: flags.Load, SetLogLevel: level.Set})
	return run(ctx, s, nil, log, stderr)
}
