package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker for releases; otherwise it comes from the build.
var version = ""

// newVersion is `kubeweir version`.
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version.",
		Example: "  kubeweir version",
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return printVersion(c.OutOrStdout()) },
	}
}

// printVersion says what was built, by which Go, and which Kubernetes is served.
func printVersion(out io.Writer) error {
	_, err := fmt.Fprintf(out, "kubeweir %s (%s, %s/%s, serves Kubernetes %s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, kubernetesVersion())
	return err
}

// buildVersion is the release, or the module's version, or the commit.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	revision, modified := "", ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			revision = "-" + setting.Value[:min(len(setting.Value), 12)]
		case setting.Key == "vcs.modified" && setting.Value == "true":
			modified = "-modified"
		}
	}
	return "devel" + revision + modified
}

// kubernetesVersion is that of the module that the API is made of.
func kubernetesVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == "k8s.io/kubernetes" {
				return dependency.Version
			}
		}
	}
	return "unknown"
}
