// Command build builds the programs that end-to-end tests start, with all processors and before the
// tests' deadlines begin.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/kubeweir/kubeweir/test/realkube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := build(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

func build(ctx context.Context) error {
	if _, err := realkube.Binaries(ctx); err != nil {
		return err
	}
	if _, err := realkube.Kubeweir(ctx); err != nil {
		return err
	}
	if _, err := realkube.BuildControllers(ctx); err != nil {
		return err
	}
	if _, err := realkube.BuildKubelet(ctx); err != nil {
		return err
	}
	for _, release := range []string{realkube.Release130, realkube.Release133, realkube.Release136} {
		if _, err := realkube.KubeAPIServer(ctx, release); err != nil {
			return err
		}
	}
	for module, program := range realkube.Tools {
		if _, err := realkube.Tool(ctx, module, program); err != nil {
			return err
		}
	}
	return nil
}
