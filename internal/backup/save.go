package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/origin/registry"
	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
	"github.com/kubeweir/kubeweir/origin/storage/snapshot"
)

// StoreFolder is the folder of the store in a data folder.
const StoreFolder = "store"

// A Source is where a snapshot comes from: a data folder, or a running standalone.
type Source struct {
	DataDir string // empty for a running standalone
	// Kubeconfig and Context, or kubectl's defaults, have the address and credentials of a standalone.
	Kubeconfig, Context string
	// Program is the User-Agent, and is saved in snapshots of data folders.
	Program string
}

// Save writes a snapshot to a file, which appears when it is complete and on disk.
func Save(ctx context.Context, source Source, path string, overwrite bool) (*snapshot.Reader, error) {
	f, err := snapshot.Create(path, overwrite)
	if err != nil {
		return nil, fileError(path, err)
	}
	defer f.Abort()
	save := source.download
	if source.DataDir != "" {
		save = source.copyFolder
	}
	saved, err := save(ctx, f)
	if err != nil {
		return nil, err
	}
	if err := f.Commit(); err != nil {
		return nil, fileError(path, err)
	}
	return saved, nil
}

// Verify reads a whole snapshot.
func Verify(ctx context.Context, in io.Reader) (*snapshot.Reader, error) {
	r, err := snapshot.NewReader(in)
	for err == nil {
		_, err = r.Next()
	}
	switch {
	case errors.Is(err, io.EOF):
		return r, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, err
}

// fileError explains why a file cannot be written.
func fileError(path string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists; set --force to overwrite it", path)
	}
	return fmt.Errorf("%s cannot be written: %w", path, UnwrapPath(err))
}

// UnwrapPath removes the path from an error.
func UnwrapPath(err error) error {
	if path := new(fs.PathError); errors.As(err, &path) {
		return path.Err
	}
	return err
}

// copyFolder writes a snapshot of a data folder to f.
func (s *Source) copyFolder(ctx context.Context, f *snapshot.File) (*snapshot.Reader, error) {
	e, err := openStore(s.DataDir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.Close() }()
	taken, err := e.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = taken.Close() }()
	h := snapshot.Header{Revision: taken.Revision(), Keys: taken.Len(), Created: time.Now().UTC().Truncate(time.Second), Program: s.Program}
	if h.Cluster, err = snapshot.ClusterUID(ctx, e, registry.DefaultPrefix); err != nil {
		return nil, err
	}
	each := func(f func(storage.Entry) error) error { return taken.Each(ctx, f) }
	if err := snapshot.Write(writer{f}, h, each); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return Verify(ctx, f)
}

// openStore opens the store of a data folder, which must exist.
func openStore(dataDir string) (*embedded.Engine, error) {
	dir := filepath.Join(dataDir, StoreFolder)
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("--data-dir: %s: %w", dir, UnwrapPath(err))
	}
	e, err := embedded.Open(embedded.Options{Dir: dir, HistoryAge: -1})
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	return e, nil
}

// download writes a snapshot of a running standalone to f.
func (s *Source) download(ctx context.Context, f *snapshot.File) (*snapshot.Reader, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.Kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: s.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	cfg.UserAgent, cfg.DisableCompression, cfg.Timeout = s.Program, true, 0
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	at := base.Scheme + "://" + base.Host + base.Path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath(api.SnapshotPath).String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("--kubeconfig: no server responds at %s: %w", at, errors.Unwrap(err))
	}
	defer func() { _ = resp.Body.Close() }()
	if err := checkDownload(at, resp); err != nil {
		return nil, err
	}
	saved, err := Verify(ctx, io.TeeReader(resp.Body, writer{f}))
	if err != nil && ctx.Err() == nil {
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

// writer adds the name of the file to errors.
type writer struct{ *snapshot.File }

func (w writer) Write(p []byte) (int, error) {
	n, err := w.File.Write(p)
	if err != nil {
		err = fmt.Errorf("%s cannot be written: %w", w.Name(), UnwrapPath(err))
	}
	return n, err
}
