package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newMan is `kubeweir man`, for building packages. It is hidden because the pages contain the same as
// --help.
func newMan() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:     "man",
		Short:   "Write the man pages.",
		Long:    "One page for each command, in section 1.",
		Example: "  kubeweir man --dir /usr/local/share/man/man1",
		Hidden:  true,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if dir == "" {
				return usageErrorf("--dir must name the folder for the man pages")
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("--dir: %w", err)
			}
			b := thisBuild()
			header := &doc.GenManHeader{Section: "1", Source: "kubeweir " + b.Version, Manual: "kubeweir"}
			if date, err := time.Parse(time.RFC3339, b.Date); err == nil {
				header.Date = &date // of the commit, so that builds are reproducible
			}
			c.Root().DisableAutoGenTag = true
			return doc.GenManTree(c.Root(), header, dir)
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "`folder` for the pages; created if necessary")
	return c
}
