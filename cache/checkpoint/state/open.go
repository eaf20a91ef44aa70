package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
)

// ErrInUse reports that another Dir, of this process or another one, owns the directory.
var ErrInUse = errors.New("is in use by another process")

// Open opens and locks the directory; Close unlocks it. Checkpoints that this version cannot read,
// or whose encryption does not match the options, are removed. Errors name the directory.
func Open(o Options) (*Dir, error) {
	d := newDir(o)
	if err := d.take(); err != nil {
		return nil, err
	}
	if err := d.register(o.Registerer); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Dir) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	if err := errors.Join(
		r.Register(gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_state_bytes", Help: "Bytes of checkpoints on disk.",
		}, func() float64 { now, _ := d.Bytes(); return float64(now) })),
		r.Register(gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_state_bytes_limit", Help: "Limit on the bytes of checkpoints on disk; collections that do not fit are not saved.",
		}, func() float64 { return float64(d.maxBytes) })),
		r.Register(gaugefunc.NewCounter(prometheus.CounterOpts{
			Name: "kubeweir_state_written_bytes_total", Help: "Bytes of checkpoints written to disk.",
		}, func() float64 { _, written := d.Bytes(); return float64(written) })),
	); err != nil {
		return fmt.Errorf("state metrics: %w", err)
	}
	return nil
}

// take creates and locks the directory.
func (d *Dir) take() (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	err = d.fs.MkdirAll(d.path, 0o700)
	_ = d.syncDir(filepath.Dir(filepath.Clean(d.path))) // the parent may not be readable
	if err != nil {
		return fmt.Errorf("cannot create the state directory %s: %w", d.path, cause(err))
	}
	names, err := d.fs.List(d.path)
	if err != nil {
		return fmt.Errorf("cannot read the state directory %s: %w", d.path, cause(err))
	}
	if _, _, err := d.readMarker(names, slog.New(slog.DiscardHandler)); err != nil { // before a file is created in an unrelated directory
		return err
	}
	lock, err := d.fs.Lock(filepath.Join(d.path, lockName))
	if err != nil {
		if inUse(err) {
			return fmt.Errorf("the state directory %s %w", d.path, ErrInUse)
		}
		return fmt.Errorf("cannot write to the state directory %s: %w", d.path, cause(err))
	}
	d.mu.Lock()
	d.mu.lock = lock
	d.mu.Unlock()
	if _, ok := d.fs.(private); ok { // remove other users' access to it
		if err := os.Chmod(d.path, 0o700); err != nil {
			return fmt.Errorf("cannot restrict access to the state directory %s: %w", d.path, cause(err))
		}
	}
	// Another process may have owned it until now.
	if names, err = d.fs.List(d.path); err != nil {
		return fmt.Errorf("cannot read the state directory %s: %w", d.path, cause(err))
	}
	m, known, err := d.readMarker(names, d.log)
	if err != nil {
		return err
	}
	if err = d.tidy(names, known); err == nil && (!known || m.Cluster != d.cluster) {
		err = d.writeMarker()
	}
	if err != nil {
		return fmt.Errorf("cannot write to the state directory %s: %w", d.path, cause(err))
	}
	return nil
}

// readMarker reports whether the checkpoints can be read. An error means that the directory must
// not be used.
func (d *Dir) readMarker(names []string, log *slog.Logger) (m marker, known bool, err error) {
	content, err := d.readFile(markerName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		for _, name := range names {
			if name != lockName && name != markerName+newExt {
				return m, false, fmt.Errorf("the state directory %s contains other files, such as %s: use an empty directory", d.path, name)
			}
		}
		return m, false, nil
	case err != nil:
		return m, false, fmt.Errorf("cannot read the state directory %s: %w", d.path, cause(err))
	}
	if err := json.Unmarshal(content, &m); err != nil {
		log.Warn("state dropped: damaged", "dir", d.path, "error", err)
		return m, false, nil
	}
	switch {
	case m.Format != format:
		log.Warn("state dropped: unknown format", "dir", d.path, "format", m.Format, "known", format)
		return m, false, nil
	case len(m.Check) > 0 && d.key == nil:
		return m, false, fmt.Errorf("the state directory %s is encrypted: set --state-key-file, or use another directory", d.path)
	case len(m.Check) == 0 && d.key != nil:
		log.Warn("state dropped: not encrypted", "dir", d.path)
		return m, false, nil
	case len(m.Check) > 0 && !d.checks(m.Check):
		return m, false, fmt.Errorf("the state directory %s is encrypted with a key other than --state-key-file", d.path)
	}
	return m, true, nil
}

// checkPlace is the associated data of the marker's proof.
var checkPlace = []byte("kubeweir-state")

func (d *Dir) checks(check []byte) bool {
	l, err := newLayout(d.key, checkPlace, "")
	if err != nil {
		return false
	}
	_, err = l.aead.Open(nil, nil, check, checkPlace)
	return err == nil
}

func (d *Dir) writeMarker() error {
	m := marker{Format: format, Cluster: d.cluster}
	l, err := newLayout(d.key, checkPlace, "")
	if err != nil {
		return err
	}
	if l.aead != nil {
		m.Check = l.aead.Seal(nil, nil, nil, checkPlace)
	}
	content, err := json.Marshal(m)
	if err != nil {
		return err
	}
	f, err := d.create(markerName + newExt)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(append(content, '\n'), 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return d.rename(markerName+newExt, markerName)
}

// tidy removes everything but checkpoints and records, removes those too unless known, and measures
// the rest. It touches only files of this package.
func (d *Dir) tidy(names []string, known bool) error {
	for _, name := range names {
		image := strings.HasSuffix(name, imageExt) || strings.HasSuffix(name, recordExt)
		switch {
		case image && known:
			info, err := d.fs.Stat(d.file(name))
			if err != nil {
				return err
			}
			d.account(name, info.Size())
		case image || strings.HasSuffix(name, newExt):
			if err := d.fs.Remove(d.file(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// marker is the content of the file that identifies a state directory.
type marker struct {
	Format int `json:"format"`
	// Check proves knowledge of the key; nil if checkpoints are not encrypted.
	Check []byte `json:"check,omitempty"`
	// Cluster is Options.Cluster.
	Cluster string `json:"cluster,omitempty"`
}

// Names implements checkpoint.Storage.
func (d *Dir) Names() ([]string, error) {
	if !d.opened() {
		return nil, nil
	}
	files, err := d.fs.List(d.path)
	if err != nil {
		return nil, fmt.Errorf("reading the state directory: %w", cause(err))
	}
	var names []string
	for _, file := range files {
		if name, ok := strings.CutSuffix(file, imageExt); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// Remove implements checkpoint.Storage.
func (d *Dir) Remove(name string) error { return d.remove(name + imageExt) }

// Hurry implements checkpoint.Storage.
func (d *Dir) Hurry() { d.hurry() }

// inUse reports whether err means that another Dir holds the lock.
func inUse(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) && !errors.As(err, new(*os.PathError)) ||
		err.Error() == "lock held by current process" // Pebble exports no value for it
}
