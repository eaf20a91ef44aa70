package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app"
	"github.com/kubeweir/kubeweir/internal/envtest"
	"github.com/kubeweir/kubeweir/origin/builtin/admit"
)

// Environment variables of the programs in the folder for envtest.
const (
	storeVariable = "KUBEWEIR_STORE" // has etcd store the objects on disk
)

// newEnvtestAssets is `kubeweir envtest-assets`.
func newEnvtestAssets() *cobra.Command {
	return &cobra.Command{
		Use:   "envtest-assets [DIR]",
		Short: "Fill a folder for envtest's KUBEBUILDER_ASSETS.",
		Long: `The folder gets this program under the names kube-apiserver and etcd, and a kubectl if there is one
beside this program or on PATH. Test suites that use envtest then run against kubeweir, without a
change. Prints the absolute path of the folder (default: kubeweir-envtest).

The objects are in memory. With KUBEWEIR_STORE=disk they are in etcd's data directory, and survive a
restart of kube-apiserver. With KUBEWEIR_CONTROLLERS=namespace,garbagecollector, kube-apiserver runs
these controllers of kube-controller-manager, as kubeweir standalone --controllers does.`,
		Example: `  export KUBEBUILDER_ASSETS=$(kubeweir envtest-assets)
  go test ./...`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return noArgs(c, args[1:])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			dir, err := filepath.Abs(slices.Concat(args, []string{"kubeweir-envtest"})[0])
			if err != nil {
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			if err := envtest.FillAssets(dir, program); errors.Is(err, envtest.ErrNoKubectl) {
				fmt.Fprintf(c.ErrOrStderr(), "kubeweir: %v\n", err)
			} else if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), dir)
			return err
		},
	}
}

// standIn returns the entry point if path is named kube-apiserver or etcd, nil otherwise.
func standIn(path string) func(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	name := strings.TrimSuffix(filepath.Base(path), ".exe")
	run := map[string]func(context.Context, []string, io.Writer, io.Writer) error{"kube-apiserver": runAPIServer, "etcd": runEtcd}[name]
	if run == nil {
		return nil
	}
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) int {
		if err := run(ctx, args, stdout, stderr); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", name, err)
			return exitError
		}
		return exitOK
	}
}

// runAPIServer serves as kube-apiserver until ctx or the parent process ends.
func runAPIServer(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	switch {
	case slices.Contains(args, "--help"), slices.Contains(args, "-h"):
		return printAPIServerHelp(stdout)
	case slices.Contains(args, "--version"):
		_, err := fmt.Fprintf(stdout, "Kubernetes %s\n", thisBuild().Kubernetes)
		return err
	}
	a, err := envtest.ParseAPIServer(args, os.Getenv(envtest.ControllersVariable))
	if err != nil {
		return err
	}
	if err := utilfeature.DefaultMutableFeatureGate.Set(strings.Join(a.FeatureGates, ",")); err != nil {
		return fmt.Errorf("--feature-gates: %w", err)
	}
	ctx = envtest.Parent(ctx)
	log, _ := newLogger(config.Log{Level: "warn"}, stderr)
	if len(a.Ignored) > 0 {
		log.Warn("flags without effect", "flags", strings.Join(a.Ignored, " "))
	}
	outlivePanics()
	quietLibraries(log)
	store, err := envtest.FindStore(ctx, a.Config.Etcd.Servers)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	return serveAPIServer(ctx, a, store, log, stderr)
}

// serveAPIServer serves until ctx ends, and then ends at once, as tests want it.
func serveAPIServer(ctx context.Context, a *envtest.APIServer, store *envtest.Store, log *slog.Logger, stderr io.Writer) error {
	options := app.StandaloneOptions{NoDataDir: true, KubeAPIServer: a.Further, UserAgent: userAgent(), Logger: log}
	if store.StandIn {
		a.Config.Etcd.Servers = nil
	}
	if a.OnlyPlugins != nil {
		a.Config.Admission = config.Admission{EnablePlugins: a.OnlyPlugins, DisablePlugins: admit.Except(a.OnlyPlugins)}
	}
	if store.DataDir != "" {
		options.NoDataDir, a.Config.DataDir = false, filepath.Join(store.DataDir, "kubeweir")
	}
	s, err := app.NewStandalone(ctx, a.Config, options)
	if err != nil {
		for ours, theirs := range map[string]string{"--listen: ": "--secure-port: ", "--controllers: ": envtest.ControllersVariable + ": "} {
			if text, found := strings.CutPrefix(err.Error(), ours); found {
				return errors.New(theirs + text)
			}
		}
		return err
	}
	defer s.Close()
	if err := s.Start(ctx); err != nil {
		return err
	}
	defer s.Cut()
	s.Announce(stderr)
	select {
	case err = <-s.Failed():
	case <-ctx.Done():
	}
	return err
}

// printAPIServerHelp lists the flags. envtest looks for flags in it.
func printAPIServerHelp(stdout io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "kube-apiserver of kubeweir %s, for test suites. Usage: kube-apiserver [flags]\n\nFlags:\n", buildVersion())
	for _, f := range envtest.Flags() {
		note := string(f.Effect)
		if f.Reason != "" {
			note += ": " + f.Reason
		}
		fmt.Fprintf(&text, "      --%s   %s\n", f.Name, note)
	}
	_, err := io.WriteString(stdout, text.String())
	return err
}

// etcdHelp lists the flags. envtest looks for --unsafe-no-fsync in it.
const etcdHelp = `kubeweir's stand-in for etcd, for test suites. Usage: etcd [flags]

Flags:
  --data-dir               folder for the objects, with KUBEWEIR_STORE=disk
  --listen-client-urls     URL for clients, without TLS
  --unsafe-no-fsync        ignored, as all other flags
`

// runEtcd serves as etcd until ctx or the parent process ends.
func runEtcd(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	switch {
	case slices.Contains(args, "--help"), slices.Contains(args, "-h"):
		_, err := io.WriteString(stdout, etcdHelp)
		return err
	case slices.Contains(args, "--version"):
		_, err := fmt.Fprintf(stdout, "etcd Version: 3.6.0 (stand-in of kubeweir %s)\n", buildVersion())
		return err
	}
	e, err := envtest.ParseEtcd(args)
	if err != nil {
		return err
	}
	switch where := os.Getenv(storeVariable); where {
	case "", "memory":
	case "disk":
		e.OnDisk = true
	default:
		return fmt.Errorf("%s must be memory or disk, not %q", storeVariable, where)
	}
	if len(e.Ignored) > 0 {
		fmt.Fprintf(stderr, "etcd: flags without effect: %s\n", strings.Join(e.Ignored, " "))
	}
	return e.Serve(envtest.Parent(ctx), func(a net.Addr) { fmt.Fprintf(stderr, "etcd: ready on http://%s, as a stand-in of kubeweir\n", a) })
}
