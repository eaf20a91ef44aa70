package main

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/origin/registry"
	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
	"github.com/kubeweir/kubeweir/origin/storage/snapshot"
)

// storeFolder is the folder of the store in a data folder.
const storeFolder = "store"

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
	var source snapshotSource
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
			if source.dataDir != "" && (source.kubeconfig != "" || source.context != "") {
				return usageErrorf("--data-dir reads a folder, and --kubeconfig and --context a running standalone; give one of them")
			}
			return saveSnapshot(c, &source, args[0], force)
		},
	}
	f := c.Flags()
	f.StringVar(&source.kubeconfig, "kubeconfig", "", "`file` with address and credentials (default $KUBECONFIG, or ~/.kube/config)")
	f.StringVar(&source.context, "context", "", "`name` of the kubeconfig's context (default the current one)")
	f.StringVar(&source.dataDir, "data-dir", "", "data `folder` of a standalone that does not run")
	f.BoolVar(&force, "force", false, "overwrite an existing file")
	return c
}

// snapshotSource is where a snapshot comes from.
type snapshotSource struct{ kubeconfig, context, dataDir string }

func saveSnapshot(c *cobra.Command, source *snapshotSource, path string, force bool) error {
	f, err := snapshot.Create(path, force)
	if err != nil {
		return fileError(path, err)
	}
	defer f.Abort()
	var saved *snapshot.Reader
	if source.dataDir != "" {
		saved, err = source.copyFolder(c, f)
	} else {
		saved, err = source.download(c, f)
	}
	if err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return fileError(path, err)
	}
	h := saved.Header()
	_, err = fmt.Fprintf(c.OutOrStdout(), "saved %s: revision %d, %d keys, %d bytes\n", path, h.Revision, h.Keys, saved.Size())
	return err
}

// fileError explains why a file cannot be written.
func fileError(path string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists; set --force to overwrite it", path)
	}
	return fmt.Errorf("%s cannot be written: %w", path, unwrapPath(err))
}

// unwrapPath removes the path from an error.
func unwrapPath(err error) error {
	if path := new(fs.PathError); errors.As(err, &path) {
		return path.Err
	}
	return err
}

// copyFolder writes a snapshot of a data folder to f.
func (s *snapshotSource) copyFolder(c *cobra.Command, f *snapshot.File) (*snapshot.Reader, error) {
	e, err := openStore(s.dataDir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.Close() }()
	taken, err := e.Snapshot(c.Context())
	if err != nil {
		return nil, err
	}
	defer func() { _ = taken.Close() }()
	h := snapshot.Header{Revision: taken.Revision(), Keys: taken.Len(), Created: time.Now().UTC().Truncate(time.Second), Program: userAgent()}
	if h.Cluster, err = snapshot.ClusterUID(c.Context(), e, registry.DefaultPrefix); err != nil {
		return nil, err
	}
	each := func(f func(storage.Entry) error) error { return taken.Each(c.Context(), f) }
	if err := snapshot.Write(writer{f}, h, each); err != nil {
		if c.Context().Err() != nil {
			err = errInterrupted
		}
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return verify(c, f)
}

// openStore opens the store of a data folder, which must exist.
func openStore(dataDir string) (*embedded.Engine, error) {
	dir := filepath.Join(dataDir, storeFolder)
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("--data-dir: %s: %w", dir, unwrapPath(err))
	}
	e, err := embedded.Open(embedded.Options{Dir: dir, HistoryAge: -1})
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	return e, nil
}

// download writes a snapshot of a running standalone to f.
func (s *snapshotSource) download(c *cobra.Command, f *snapshot.File) (*snapshot.Reader, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: s.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	cfg.UserAgent, cfg.DisableCompression, cfg.Timeout = userAgent(), true, 0
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	at := base.Scheme + "://" + base.Host + base.Path
	req, err := http.NewRequestWithContext(c.Context(), http.MethodGet, base.JoinPath(api.SnapshotPath).String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	switch {
	case c.Context().Err() != nil:
		return nil, errInterrupted
	case err != nil:
		return nil, fmt.Errorf("--kubeconfig: no server responds at %s: %w", at, errors.Unwrap(err))
	}
	defer func() { _ = resp.Body.Close() }()
	if err := checkDownload(at, resp); err != nil {
		return nil, err
	}
	saved, err := verify(c, io.TeeReader(resp.Body, writer{f}))
	if err != nil && c.Context().Err() == nil {
		err = fmt.Errorf("the snapshot of %s is not complete: %w", at, err)
	}
	return saved, err
}

// checkDownload returns an error unless a response is a snapshot.
func checkDownload(at string, resp *http.Response) error {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && media == snapshot.MediaType {
		return nil
	}
	var status metav1.Status
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil || json.Unmarshal(body, &status) != nil || status.Kind != "Status" || resp.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%s is not a kubeweir standalone that supports snapshots: %s", at, resp.Status)
	}
	return fmt.Errorf("the server at %s rejects the request: %.500s", at, status.Message)
}

// verify reads a whole snapshot.
func verify(c *cobra.Command, in io.Reader) (*snapshot.Reader, error) {
	r, err := snapshot.NewReader(in)
	for err == nil {
		_, err = r.Next()
	}
	switch {
	case errors.Is(err, io.EOF):
		return r, nil
	case c.Context().Err() != nil:
		return nil, errInterrupted
	}
	return nil, err
}

// writer adds the name of the file to errors.
type writer struct{ *snapshot.File }

func (w writer) Write(p []byte) (int, error) {
	n, err := w.File.Write(p)
	if err != nil {
		err = fmt.Errorf("%s cannot be written: %w", w.Name(), unwrapPath(err))
	}
	return n, err
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
			return restoreSnapshot(c, args[0], dataDir, bump)
		},
	}
	c.Flags().StringVar(&dataDir, "data-dir", "kubeweir-data", "data `folder` of the standalone")
	c.Flags().Uint64Var(&bump, "bump-revision", defaultBump, "`number` by which the revision is raised")
	return c
}

func restoreSnapshot(c *cobra.Command, path, dataDir string, bump uint64) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, unwrapPath(err))
	}
	defer func() { _ = f.Close() }()
	r, err := snapshot.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	h := r.Header()
	if h.Revision > math.MaxInt64/2 {
		return fmt.Errorf("%s: the revision %d is too high", path, h.Revision)
	}
	revision := max(h.Revision, 1) + bump
	next := func() (storage.Entry, error) {
		if c.Context().Err() != nil {
			return storage.Entry{}, errInterrupted
		}
		e, err := r.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return e, err
	}
	return restoreStore(c, dataDir, h.Revision, revision, next, r.Header)
}

// restoreStore makes the store of a data folder, and prints what it has done.
func restoreStore(c *cobra.Command, dataDir string, from, revision uint64, next func() (storage.Entry, error), header func() snapshot.Header) error {
	dir := filepath.Join(dataDir, storeFolder)
	switch err := embedded.Restore(dir, from, revision, next); {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("--data-dir: %s exists; end its server and move it away", dir)
	case err != nil:
		return err
	}
	if _, err := os.Stat(filepath.Join(dataDir, "pki")); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(c.ErrOrStderr(), "kubeweir: %s has no folder pki; without the one from before, the server makes new keys, and tokens and client certificates become invalid\n", dataDir)
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "restored %s: %d keys of revision %d, continues at revision %d\n", dir, header().Keys, from, revision)
	return err
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
		return fmt.Errorf("%s: %w", path, unwrapPath(err))
	}
	defer func() { _ = f.Close() }()
	r, err := verify(c, f)
	if err != nil {
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
