package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kubeweir/kubeweir/internal/backup"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
)

// newCheck is `kubeweir standalone check`.
func newCheck() *cobra.Command {
	var dataDir string
	c := &cobra.Command{
		Use:   "check",
		Short: "Check the store of a data folder for damage.",
		Long: `Reads every file, key and index in the store of a standalone that does not run, and compares all
checksums. It changes nothing. It prints file, offset and key of each fault, and exits with code 1
if there is any.`,
		Example: `  kubeweir standalone check --data-dir kubeweir-data`,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if dataDir == "" {
				return usageErrorf("--data-dir must not be empty")
			}
			return checkStore(c, filepath.Join(dataDir, backup.StoreFolder))
		},
	}
	c.Flags().StringVar(&dataDir, "data-dir", "kubeweir-data", "data `folder` of the standalone")
	return c
}

func checkStore(c *cobra.Command, dir string) error {
	r, err := embedded.Check(c.Context(), dir)
	switch {
	case c.Context().Err() != nil:
		return errInterrupted
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--data-dir: %s is not the store of a standalone", dir)
	case err != nil:
		return fmt.Errorf("--data-dir: %w", err)
	}
	for _, f := range r.Faults {
		if _, err := fmt.Fprintln(c.OutOrStdout(), f); err != nil {
			return err
		}
	}
	if n := len(r.Faults) + r.More; n > 0 {
		return fmt.Errorf("%s has %d faults, of which %d are printed; restore a snapshot", dir, n, len(r.Faults))
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s is intact: revision %d, %d keys, %d changes, %d bytes in %d files\n", dir, r.Revision, r.Keys, r.Changes, r.Bytes, r.Files)
	return err
}
