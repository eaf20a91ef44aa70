// Command up is `make run`: a real etcd and kube-apiserver with kubeweir in front of them, for
// experiments. It needs nothing but Go, keeps its files in .cache/run of the repository, starts
// empty each time and stops on Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/kubeweir/kubeweir/test/realkube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "up:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
	binary := flags.String("gateway", "", "path of the kubeweir program (default: built from cmd/kubeweir)")
	listen := flags.String("listen", "127.0.0.1:8443", "address of the gateway")
	admin := flags.String("admin-listen", "127.0.0.1:9444", "address of the gateway's metrics and profiles")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := realkube.RepoRoot()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, ".cache", "run")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}

	_, _ = fmt.Fprintln(out, "Starting etcd and kube-apiserver (the first time they are built, which takes minutes) ...")
	cluster, err := realkube.Start(ctx, realkube.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { _ = cluster.Close() }()
	gateway, err := realkube.StartGatewayWith(ctx, cluster, realkube.GatewayOptions{
		Path: *binary, Listen: *listen, AdminListen: *admin,
	})
	if err != nil {
		return err
	}
	defer gateway.Close()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := gateway.WriteKubeconfig(kubeconfig, cluster.AdminToken()); err != nil {
		return err
	}
	if err := explain(ctx, out, cluster, gateway, kubeconfig); err != nil {
		return err
	}

	select {
	case <-gateway.Done():
		return fmt.Errorf("the gateway ended:\n%s", gateway.Log())
	case <-ctx.Done():
		_, _ = fmt.Fprintln(out, "\nStopping ...")
		// ctx is already canceled; Stop has a timeout of its own.
		return gateway.Stop(context.WithoutCancel(ctx))
	}
}

func explain(ctx context.Context, out io.Writer, c *realkube.Cluster, g *realkube.Gateway, kubeconfig string) error {
	paths, err := realkube.Binaries(ctx)
	if err != nil {
		return err
	}
	kubectlHint := ""
	if _, err := exec.LookPath("kubectl"); err != nil {
		kubectlHint = fmt.Sprintf("    export PATH=%s:$PATH\n", filepath.Dir(paths.Kubectl))
	}
	_, err = fmt.Fprintf(out, `
kubeweir serves %s in front of kube-apiserver at %s.
Metrics: %s/metrics   Log: %s

In another terminal:

    export KUBECONFIG=%s
%s
    kubectl get pods --all-namespaces -o wide --watch
    kubectl run web --image=nginx
    kubectl api-resources

Ctrl-C stops everything.
`, g.URL(), c.URL(), g.AdminURL(), g.LogFile(), kubeconfig, kubectlHint)
	return err
}
