package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Set by the linker for releases (-X main.version=v1.2.3); otherwise they come from
// what Go knows of the build.
var (
	version = ""
	commit  = ""
	date    = "" // of the commit, RFC 3339
)

// newVersion is `kubeweir version`.
func newVersion() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version.",
		Long: `Prints the release or commit, the Go version of the build, and the Kubernetes version that a
standalone serves. Go records the commit (unless built with -buildvcs=false), or the linker sets
it, as in make build and releases.`,
		Example: `  kubeweir version
  kubeweir version -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch output {
			case "text":
				return printVersion(c.OutOrStdout())
			case "json":
				encoder := json.NewEncoder(c.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(thisBuild())
			}
			return usageErrorf("--output must be text or json, not %q", output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "`format`: text or json")
	annotateChoices(c, "output", "text", "json")
	return c
}

// build is what is known of this program.
type build struct {
	Version    string `json:"version"`
	Commit     string `json:"commit,omitempty"`
	Date       string `json:"date,omitempty"`     // of the commit
	Modified   bool   `json:"modified,omitempty"` // since the commit
	Go         string `json:"goVersion"`
	Platform   string `json:"platform"`
	Kubernetes string `json:"kubernetesVersion"` // that is served
}

func thisBuild() build {
	b := build{
		Version: version, Commit: commit, Date: date,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Kubernetes: "unknown",
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.complete(info)
	}
	b.Version = cmp.Or(b.Version, "devel")
	return b
}

// complete adds what Go wrote into the program.
func (b *build) complete(info *debug.BuildInfo) {
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, setting.Value)
		case "vcs.time":
			b.Date = cmp.Or(b.Date, setting.Value)
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	for _, dependency := range info.Deps {
		if dependency.Path == "k8s.io/kubernetes" {
			b.Kubernetes = dependency.Version
		}
	}
	switch {
	case b.Version != "":
	case info.Main.Version != "" && info.Main.Version != "(devel)":
		b.Version = info.Main.Version
	case b.Commit != "":
		b.Version = "devel-" + b.Commit[:min(len(b.Commit), 12)]
		if b.Modified {
			b.Version += "-modified"
		}
	}
}

// String is the build on one line.
func (b build) String() string {
	known := cmp.Or(strings.TrimSpace(b.Commit+" "+b.Date), "unknown")
	return fmt.Sprintf("kubeweir %s (commit %s, %s, %s, serves Kubernetes %s)", b.Version, known, b.Go, b.Platform, b.Kubernetes)
}

// printVersion prints the version of the program and of Go, and which Kubernetes it serves.
func printVersion(out io.Writer) error {
	_, err := fmt.Fprintln(out, thisBuild())
	return err
}

// buildVersion is the release, or the module's version, or the commit.
func buildVersion() string { return thisBuild().Version }
