package main

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubeweir/kubeweir/internal/backup"
	"github.com/kubeweir/kubeweir/origin/storage/snapshot"
)

// report prints the result of a command, or returns its error.
func report(c *cobra.Command, err error, format string, args ...any) error {
	switch {
	case c.Context().Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), format, args...)
	return err
}

// newSnapshot is `kubeweir standalone snapshot`.
func newSnapshot() *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Save, restore and inspect snapshots of the objects.",
		Long: `A snapshot is a file with all objects of a standalone at one revision as they are stored, Secrets
included: in the clear without --encryption-provider-config. It has a checksum. Keys and
certificates (the folder pki in the data folder) are not part of it.`,
		Example: `  kubeweir standalone snapshot save backup.snapshot
  kubeweir standalone snapshot status backup.snapshot
  kubeweir standalone snapshot restore backup.snapshot --data-dir kubeweir-data`,
	}
	group(c)
	c.AddCommand(newSnapshotSave(), newSnapshotRestore(), newSnapshotStatus())
	return c
}

// oneFile requires one argument, a file.
func oneFile(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageErrorf("a file is required; see %s --help", c.CommandPath())
	}
	return noArgs(c, args[1:])
}

func newSnapshotSave() *cobra.Command {
	source := backup.Source{Program: userAgent()}
	var force bool
	c := &cobra.Command{
		Use:   "save FILE",
		Short: "Save a snapshot of a running standalone, or of a data folder.",
		Long: `Downloads a snapshot from a running standalone with the credentials of a kubeconfig, whose user
must be allowed to do everything. Writes go on meanwhile. The snapshot has every write that was
acknowledged before. With --data-dir it reads the folder of a standalone that does not run.

The file is readable by its owner only. It appears under its name when it is complete and on disk.`,
		Example: `  # With the KUBECONFIG that the standalone has printed.
  kubeweir standalone snapshot save backup.snapshot

  # Of a standalone that does not run.
  kubeweir standalone snapshot save backup.snapshot --data-dir kubeweir-data`,
		Args:              oneFile,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(c *cobra.Command, args []string) error {
			if source.DataDir != "" && (source.Kubeconfig != "" || source.Context != "") {
				return usageErrorf("--data-dir reads a folder, and --kubeconfig and --context a running standalone; give one of them")
			}
			saved, err := backup.Save(c.Context(), source, args[0], force)
			if err != nil {
				return report(c, err, "")
			}
			h := saved.Header()
			return report(c, nil, "saved %s: revision %d, %d keys, %d bytes\n", args[0], h.Revision, h.Keys, saved.Size())
		},
	}
	f := c.Flags()
	f.StringVar(&source.Kubeconfig, "kubeconfig", "", "`file` with address and credentials (default $KUBECONFIG, or ~/.kube/config)")
	f.StringVar(&source.Context, "context", "", "`name` of the kubeconfig's context (default the current one)")
	f.StringVar(&source.DataDir, "data-dir", "", "data `folder` of a standalone that does not run")
	f.BoolVar(&force, "force", false, "overwrite an existing file")
	return c
}

// defaultBump is the number that etcd's documentation recommends: more than the changes that may be lost.
const defaultBump = 1_000_000_000

func newSnapshotRestore() *cobra.Command {
	var dataDir string
	var bump uint64
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a snapshot into a data folder.",
		Long: `Creates the folder store in a data folder from a snapshot. It never replaces one: move the old one
away. Objects keep their versions (resourceVersion).

The revision of the restored store is that of the snapshot and --bump-revision, so that it is higher
than all versions that clients have seen. Their watches end with 410, and they list again. Set
--bump-revision 1 only if no write was made after the snapshot.`,
		Example: `  # The standalone does not run.
  mv kubeweir-data/store kubeweir-data/store.old
  kubeweir standalone snapshot restore backup.snapshot --data-dir kubeweir-data`,
		Args:              oneFile,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(c *cobra.Command, args []string) error {
			if bump == 0 || bump > math.MaxInt64/2 {
				return usageErrorf("--bump-revision must be from 1 to %d, not %d", math.MaxInt64/2, bump)
			}
			if dataDir == "" {
				return usageErrorf("--data-dir must not be empty")
			}
			restored, err := backup.Restore(c.Context(), args[0], dataDir, bump)
			if err := report(c, err, "%s\n", restored); err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(dataDir, "pki")); errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintf(c.ErrOrStderr(), "kubeweir: %s has no folder pki; without the one from before, the server makes new keys, and tokens and client certificates become invalid\n", dataDir)
			}
			return nil
		},
	}
	c.Flags().StringVar(&dataDir, "data-dir", "kubeweir-data", "data `folder` of the standalone")
	c.Flags().Uint64Var(&bump, "bump-revision", defaultBump, "`number` by which the revision is raised")
	return c
}

func newSnapshotStatus() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "status FILE",
		Short: "Verify a snapshot and show its contents.",
		Long: `Reads the whole file and verifies its checksum. Exits with code 1 if it is damaged. CLUSTER is the
UID of the namespace kube-system.`,
		Example:           `  kubeweir standalone snapshot status backup.snapshot -o json`,
		Args:              oneFile,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(c *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return usageErrorf("--output must be table or json, not %q", output)
			}
			return snapshotStatus(c, args[0], output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "`format`: table or json")
	annotateChoices(c, "output", "table", "json")
	return c
}

func snapshotStatus(c *cobra.Command, path, output string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, backup.UnwrapPath(err))
	}
	defer func() { _ = f.Close() }()
	r, err := backup.Verify(c.Context(), f)
	switch {
	case c.Context().Err() != nil:
		return errInterrupted
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	}
	h := r.Header()
	sum := hex.EncodeToString(r.Digest())
	if output == "json" {
		encoder := json.NewEncoder(c.OutOrStdout())
		encoder.SetIndent("", "  ")
		return encoder.Encode(struct {
			snapshot.Header
			Bytes  int64  `json:"bytes"`
			SHA256 string `json:"sha256"`
		}{h, r.Size(), sum})
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REVISION\tKEYS\tBYTES\tCREATED\tCLUSTER\tSHA-256")
	fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%s\t%s\n", h.Revision, h.Keys, r.Size(), h.Created.Format(time.RFC3339), cmp.Or(h.Cluster, "-"), sum)
	return w.Flush()
}
