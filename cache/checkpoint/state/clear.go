package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ClearOthers removes checkpoints of clusters that are no longer served: the state directories
// directly below parent that are named after their cluster and are not in keep. It skips
// directories that are in use or contain other files.
func ClearOthers(parent string, keep []string, log *slog.Logger) {
	disk := private{vfs.Default}
	names, err := disk.List(parent)
	if err != nil {
		return // there is none, or opening a directory below it reports the error
	}
	for _, name := range names {
		path := filepath.Join(parent, name)
		if info, err := disk.Stat(path); err != nil || !info.IsDir() || slices.ContainsFunc(keep, func(other string) bool { return filepath.Clean(other) == path }) {
			continue
		}
		d := newDir(Options{Dir: path, Cluster: name, FS: disk, Logger: log})
		cleared, err := d.clear()
		if cleared {
			err = cause(disk.Remove(path))
		}
		d.logCleared(cleared, err)
	}
}

// logCleared logs the result of clearing the state of a cluster that is no longer served.
func (d *Dir) logCleared(cleared bool, err error) {
	if err != nil {
		d.log.Warn("state of a removed cluster not cleared", "dir", d.path, "error", err)
	} else if cleared {
		d.log.Info("state of a removed cluster cleared", "dir", d.path)
	}
}

// Clear removes the files in the state directory of a cluster that is no longer served. The
// directory itself stays, because the user named it. Clear does nothing if the directory is in use,
// belongs to another cluster or contains other files.
func Clear(path, cluster string, log *slog.Logger) {
	d := newDir(Options{Dir: path, Cluster: cluster, Logger: log})
	d.logCleared(d.clear())
}

// clear removes all files in the directory if it is the unused state directory of d's cluster.
func (d *Dir) clear() (cleared bool, err error) {
	content, err := d.readFile(markerName)
	var m marker
	if err != nil || json.Unmarshal(content, &m) != nil || m.Cluster != d.cluster {
		return false, nil
	}
	lock, err := d.fs.Lock(d.file(lockName))
	if err != nil {
		if inUse(err) {
			return false, nil
		}
		return false, cause(err)
	}
	if err = errors.Join(d.removeAll(), lock.Close()); err == nil {
		err = cause(d.fs.Remove(d.file(lockName)))
	}
	return err == nil, err
}

// removeAll removes the files except for the lock, the marker last.
func (d *Dir) removeAll() error {
	names, err := d.fs.List(d.path)
	if err != nil {
		return cause(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == markerName || name == lockName })
	for _, name := range names {
		if !slices.Contains([]string{imageExt, recordExt, newExt}, filepath.Ext(name)) {
			return fmt.Errorf("unexpected file %s", name)
		}
	}
	for _, name := range append(names, markerName) {
		if err := d.fs.Remove(d.file(name)); err != nil {
			return cause(err)
		}
	}
	return nil
}
