package realkube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// SaveEtcd copies etcd's data to a new folder for RestoreEtcd. etcd must not be running.
func (c *Cluster) SaveEtcd(dir string) error { return c.copyEtcd(c.etcdDir(), dir) }

// RestoreEtcd replaces etcd's data with the copy made by SaveEtcd: later changes are lost, and
// revisions continue from the copy's. etcd must not be running.
func (c *Cluster) RestoreEtcd(dir string) error {
	if err := os.RemoveAll(c.etcdDir()); err != nil {
		return err
	}
	return c.copyEtcd(dir, c.etcdDir())
}

func (c *Cluster) copyEtcd(from, to string) error {
	if p, err := c.etcd(); err == nil && p.running() {
		return errors.New("etcd must not run while its data is copied")
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("etcd's data: %w", err)
	}
	return filepath.WalkDir(to, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = os.Chmod(path, 0o700) // etcd requires this mode
		}
		return err
	})
}

// RestoreEtcdSnapshot replaces etcd's data with that of a snapshot, as `etcdutl snapshot restore` makes it. etcd
// must not be running.
func (c *Cluster) RestoreEtcdSnapshot(ctx context.Context, file string) error {
	etcdutl, err := Tool(ctx, "etcdutl", Tools["etcdutl"])
	if err != nil {
		return err
	}
	if err := os.RemoveAll(c.etcdDir()); err != nil {
		return err
	}
	peer := "http://" + c.etcdPeerPort.addr()
	out, err := exec.CommandContext(ctx, etcdutl, "snapshot", "restore", file, "--data-dir", c.etcdDir(), "--name", etcdName,
		"--initial-cluster", etcdName+"="+peer, "--initial-advertise-peer-urls", peer).CombinedOutput()
	if err != nil {
		return fmt.Errorf("etcdutl snapshot restore: %w\n%s", err, out)
	}
	return nil
}

func (c *Cluster) etcdDir() string { return filepath.Join(c.dir, "etcd") }

// BumpRevision raises the store's revision to at least that number and, with compact, drops all
// history before it, like `etcdutl snapshot restore --bump-revision --mark-compacted` for a store
// that replaces a newer one.
func (c *Cluster) BumpRevision(ctx context.Context, to int64, compact bool) error {
	now, err := c.Revision(ctx)
	if err != nil {
		return err
	}
	for ; now < to; now++ {
		if err := c.etcdCall(ctx, "kv/put", map[string]any{"key": []byte("bump")}, nil); err != nil {
			return err
		}
	}
	if !compact {
		return nil
	}
	return c.Compact(ctx, now)
}
