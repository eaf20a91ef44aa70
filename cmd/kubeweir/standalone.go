package main

import (
	"context"
	"errors"
	"io"
	_ "time/tzdata" // for the time zone of a CronJob, as kube-apiserver; an image has no files of them

	"github.com/spf13/cobra"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app"
	"github.com/kubeweir/kubeweir/internal/envtest"
	"github.com/kubeweir/kubeweir/origin/server"
)

// newStandalone is `kubeweir standalone`.
func newStandalone() *cobra.Command {
	flags := config.StandaloneFlags()
	var o app.StandaloneOptions
	var exitWithParent bool
	c := &cobra.Command{
		Use:   "standalone [flags|COMMAND]",
		Short: "Serve a Kubernetes API without a cluster.",
		Long: `Serves the built-in types of Kubernetes and custom resources, with admission and RBAC, and stores
objects in --data-dir or in etcd. When it is ready, it prints one line to stderr, and the
KUBECONFIG to export. On SIGTERM it drains and exits.`,
		Example: `  # In the folder kubeweir-data, which is created.
  kubeweir standalone

  # Objects in etcd; keys and certificates in the data folder.
  kubeweir standalone --data-dir data --etcd-servers http://127.0.0.1:2379

  # With a configuration file, as 'kubeweir config defaults standalone' prints it.
  kubeweir standalone --config standalone.yaml`,
		Args: func(_ *cobra.Command, args []string) error { return asUsage(flags.CheckArgs(args)) },
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := flags.Load()
			if err != nil {
				return usageError{err}
			}
			ctx := c.Context()
			if exitWithParent {
				ctx = envtest.Parent(ctx)
			}
			return runStandalone(ctx, cfg, o, c.ErrOrStderr())
		},
	}
	c.Flags().AddFlagSet(flags.Set())
	c.Flags().BoolVar(&o.ObjectsInMemory, "in-memory", false, "keep the objects in memory, and only keys, certificates and the kubeconfig in --data-dir")
	c.Flags().BoolVar(&o.TestAPI, "test-api", false, "serve snapshots of all objects, resets, faults on request and a clock, on the admin listener")
	c.Flags().BoolVar(&exitWithParent, "exit-with-parent", false, "end when the process that started this one ends, not on Windows")
	for _, name := range []string{"in-memory", "test-api", "exit-with-parent"} {
		_ = c.Flags().SetAnnotation(name, config.SectionAnnotation, []string{"For tests"}) // the flag exists
	}
	c.AddCommand(newSnapshot(), newCheck())
	return c
}

// runStandalone serves until ctx ends, then drains.
func runStandalone(ctx context.Context, cfg *config.Standalone, o app.StandaloneOptions, stderr io.Writer) error {
	log, _ := newLogger(cfg.Log, stderr)
	outlivePanics()
	quietLibraries(log)
	o.UserAgent, o.Logger = userAgent(), log
	s, err := app.NewStandalone(ctx, cfg, o)
	switch {
	case errors.As(err, new(*server.FlagError)):
		return usageError{err}
	case err != nil:
		return err
	}
	return run(ctx, s.Server, s.Failed(), log, stderr)
}
