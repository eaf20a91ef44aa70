package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
	"github.com/kubeweir/kubeweir/origin/storage/etcdfile"
	"github.com/kubeweir/kubeweir/origin/storage/snapshot"
)

// FromEtcd creates the store of a data folder from the keys below a prefix in etcd.
func FromEtcd(ctx context.Context, source etcd.Options, prefix, dataDir string) (Restored, error) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // the error says what etcd's client would log
	source.CompactionInterval = -1
	e, err := etcd.Open(ctx, source)
	if err != nil {
		return Restored{}, fmt.Errorf("--etcd-servers: %w", err)
	}
	defer func() { _ = e.Close() }()
	x, err := e.Export(ctx, strings.TrimSuffix(prefix, "/")+"/")
	if err != nil {
		return Restored{}, fmt.Errorf("--etcd-servers: %w", err)
	}
	keys := 0
	next := func() (storage.Entry, error) {
		entry, err := x.Next(ctx)
		switch {
		case err == nil:
			keys++
		case ctx.Err() != nil:
			err = ctx.Err()
		case errors.Is(err, io.EOF) && keys == 0:
			err = fmt.Errorf("--etcd-prefix: there are no keys below %s", prefix)
		case errors.Is(err, etcd.ErrChanged):
			err = fmt.Errorf("--etcd-servers: %w; stop all API servers of this etcd and try again", err)
		case !errors.Is(err, io.EOF):
			err = fmt.Errorf("--etcd-servers: %w", err)
		}
		return entry, err
	}
	return restoreStore(dataDir, x.Revision(), x.Revision()+1, next)
}

// ToEtcd writes the objects of a data folder to a file that etcdutl snapshot restore takes. It returns the number
// of keys, and the revision at which etcd continues.
func ToEtcd(ctx context.Context, dataDir, path string) (keys int, revision uint64, err error) {
	e, err := openStore(dataDir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = e.Close() }()
	taken, err := e.Snapshot(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = taken.Close() }()
	f, err := snapshot.Create(path, false)
	switch {
	case errors.Is(err, fs.ErrExist):
		return 0, 0, fmt.Errorf("--etcd-snapshot: %s exists; move it away", path)
	case err != nil:
		return 0, 0, fmt.Errorf("--etcd-snapshot: %w", fileError(path, err))
	}
	defer f.Abort()
	err = etcdfile.Write(f.Name(), taken.Revision(), time.Now(), func(write func(storage.Entry) error) error {
		return taken.Each(ctx, func(entry storage.Entry) error {
			if entry.Key == embedded.RestoredKey {
				return nil
			}
			keys++
			return write(entry)
		})
	})
	switch {
	case ctx.Err() != nil:
		return 0, 0, ctx.Err()
	case err != nil:
		return 0, 0, fmt.Errorf("--etcd-snapshot: %w", err)
	}
	if err := f.Commit(); err != nil {
		return 0, 0, fmt.Errorf("--etcd-snapshot: %w", fileError(path, err))
	}
	return keys, taken.Revision(), nil
}
