package state_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/internal/soak"
)

var key = bytes.Repeat([]byte("k"), state.KeySize)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func open(tb testing.TB, o state.Options) *state.Dir {
	tb.Helper()
	if o.Dir == "" {
		o.Dir = "/state"
	}
	if o.Logger == nil {
		o.Logger = quiet()
	}
	d, err := state.Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// contents are objects by key. Their bytes begin with the key.
type contents map[string]string

func (c contents) set(object []byte) error {
	key, _, _ := strings.Cut(string(object), " ")
	c[key] = string(object)
	return nil
}

func (c contents) deleted(key string) error {
	delete(c, key)
	return nil
}

// read reads a checkpoint up to its last commit.
func read(d *state.Dir, name string) (note string, c contents, clean bool, err error) {
	r, err := d.Open(name)
	if err != nil {
		return "", nil, false, err
	}
	defer r.Close()
	var pending []checkpoint.Block
	c = contents{}
	for {
		b, err := r.Next()
		if err != nil {
			w, err := r.Append()
			if w != nil {
				clean = true
				err = errors.Join(err, w.Close())
			}
			return note, c, clean, err
		}
		if b.Commit() == nil {
			pending = append(pending, b)
			continue
		}
		note = string(b.Commit())
		for _, b := range pending {
			if err := b.Each(c.set, c.deleted); err != nil {
				return note, c, false, err
			}
		}
		pending = nil
	}
}

// history makes random changes to a checkpoint and records the state at each commit.
type history struct {
	rand    *rand.Rand
	dir     *state.Dir
	writer  checkpoint.Writer
	now     contents
	commits []contents // by note
	durable int        // the last commit that returned
}

func newHistory(seed uint64, d *state.Dir) *history {
	return &history{rand: rand.New(rand.NewPCG(seed, 1)), dir: d, now: contents{}, commits: []contents{nil}}
}

// step makes a few changes and commits them, sometimes in a new checkpoint.
func (h *history) step() error {
	ctx := context.Background()
	for range h.rand.IntN(8) {
		key := fmt.Sprintf("k%d", h.rand.IntN(10))
		if h.rand.IntN(3) == 0 {
			delete(h.now, key)
			if h.writer != nil {
				if err := h.writer.Delete(ctx, key); err != nil {
					return err
				}
			}
			continue
		}
		value := fmt.Sprintf("%s %d %s", key, h.rand.Uint64(), strings.Repeat("x", h.rand.IntN(100_000)))
		h.now[key] = value
		if h.writer != nil {
			if err := h.writer.Set(ctx, []byte(value)); err != nil {
				return err
			}
		}
	}
	if h.writer == nil || h.rand.IntN(6) == 0 {
		if err := h.rewrite(ctx); err != nil {
			return err
		}
	}
	h.commits = append(h.commits, maps.Clone(h.now))
	if err := h.writer.Commit(ctx, strconv.AppendInt(nil, int64(len(h.commits)-1), 10)); err != nil {
		return err
	}
	h.durable = len(h.commits) - 1
	return nil
}

func (h *history) rewrite(ctx context.Context) (err error) {
	if h.writer != nil {
		if err := h.writer.Close(); err != nil {
			return err
		}
	}
	if h.writer, err = h.dir.Create(ctx, "pods", []byte("header")); err != nil {
		return err
	}
	for _, value := range h.now {
		if err := h.writer.Set(ctx, []byte(value)); err != nil {
			return err
		}
	}
	return nil
}

// check compares a checkpoint with the history: it must be the complete state of a commit not older
// than the last one that returned.
func (h *history) check(tb testing.TB, d *state.Dir) {
	tb.Helper()
	note, got, _, err := read(d, "pods")
	if errors.Is(err, fs.ErrNotExist) && h.durable == 0 {
		return
	}
	if err != nil {
		tb.Fatalf("after commit %d: %v", h.durable, err)
	}
	h.same(tb, note, got, h.durable)
}

func (h *history) same(tb testing.TB, note string, got contents, atLeast int) {
	tb.Helper()
	n, err := strconv.Atoi(note)
	if err != nil || n < atLeast || n >= len(h.commits) {
		tb.Fatalf("commit %q, want %d or more of %d", note, atLeast, len(h.commits))
	}
	if !maps.Equal(got, h.commits[n]) {
		tb.Fatalf("commit %d has %d objects, want %d", n, len(got), len(h.commits[n]))
	}
}

// TestCrash simulates a power failure at each operation that changes the disk: what remains must be
// complete and not older than the last commit.
func TestCrash(t *testing.T) {
	for _, seed := range soak.Seeds(t, 2, 100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			mem := vfs.NewCrashableMem()
			var h *history
			random := rand.New(rand.NewPCG(seed, 2))
			options := state.Options{Key: [][]byte{nil, key}[seed%2]}
			crashes := 0
			options.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if h == nil || op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
					return nil
				}
				crashed := options
				crashed.FS = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})
				d := open(t, crashed)
				h.check(t, d)
				crashes++
				return d.Close()
			}))
			d := open(t, options)
			h = newHistory(seed, d)
			for range 25 {
				if err := h.step(); err != nil {
					t.Fatal(err)
				}
			}
			if crashes < 50 {
				t.Errorf("%d crashes", crashes)
			}
		})
	}
}

// TestFailedWrites checks that, after a failed write, the last complete checkpoint remains, and
// that another one can be begun.
func TestFailedWrites(t *testing.T) {
	mem := vfs.NewMem()
	random := rand.New(rand.NewPCG(1, 2))
	var h *history
	failures := 0
	d := open(t, state.Options{FS: errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileWriteAt, errorfs.OpFileSyncData, errorfs.OpRename:
			if h != nil && random.IntN(5) == 0 {
				failures++
				return syscall.ENOSPC
			}
		}
		return nil
	}))})
	h = newHistory(1, d)
	for range 200 {
		if err := h.step(); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			if h.writer != nil {
				_ = h.writer.Close()
				h.writer = nil
			}
		}
		h.check(t, d)
	}
	if failures < 20 {
		t.Errorf("%d failures", failures)
	}
}

// TestDamage truncates and changes a file at random places: reading it must return the complete
// state of some commit, or an error.
func TestDamage(t *testing.T) {
	for _, key := range [][]byte{nil, key} {
		mem := vfs.NewMem()
		d := open(t, state.Options{FS: mem, Key: key})
		h := newHistory(3, d)
		for range 12 {
			if err := h.step(); err != nil {
				t.Fatal(err)
			}
		}
		f, err := mem.Open("/state/pods.image")
		if err != nil {
			t.Fatal(err)
		}
		whole, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(4, 4))
		outcomes := map[string]int{}
		for i := range soak.Cases(400, 2000) {
			damaged := bytes.Clone(whole)
			place := random.IntN(len(damaged))
			if random.IntN(4) == 0 {
				place = random.IntN(120)
			}
			switch i % 4 {
			case 0:
				damaged = damaged[:place]
			case 1:
				damaged[place] ^= 1 << random.IntN(8)
			case 2:
				clear(damaged[place:min(len(damaged), place+random.IntN(8192))])
			case 3:
				damaged = append(damaged[:place], damaged[random.IntN(len(damaged)):]...)
			}
			f, err := mem.Create("/state/pods.image", vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(bytes.Clone(damaged)); err != nil {
				t.Fatal(err)
			}
			note, got, _, err := read(d, "pods")
			switch {
			case err != nil:
				outcomes["error"]++
			case note == "":
				outcomes["never whole"]++
			default:
				outcomes["whole"]++
				h.same(t, note, got, 1)
			}
		}
		if len(outcomes) < 3 {
			t.Errorf("outcomes %v", outcomes)
		}
	}
}

// TestSealed checks that encrypted checkpoints contain no plain text.
func TestSealed(t *testing.T) {
	dir := t.TempDir()
	for _, key := range [][]byte{nil, key} {
		d := open(t, state.Options{Dir: filepath.Join(dir, fmt.Sprint(key != nil)), Key: key})
		w, err := d.Create(t.Context(), "secrets", []byte("the header"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Set(t.Context(), []byte("hunter2")), w.Delete(t.Context(), "default/hunter2"), w.Commit(t.Context(), []byte("the note")), w.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
		var all []byte
		err = filepath.WalkDir(dir+"/"+fmt.Sprint(key != nil), func(path string, e fs.DirEntry, err error) error {
			info, infoErr := e.Info()
			if err := errors.Join(err, infoErr); err != nil {
				return err
			}
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %o", path, info.Mode().Perm())
			}
			if e.IsDir() {
				return nil
			}
			content, err := os.ReadFile(path)
			all = append(all, content...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"hunter2", "the header", "the note"} {
			if bytes.Contains(all, []byte(text)) != (key == nil) {
				t.Errorf("key %t: %q on disk: %t", key != nil, text, key == nil)
			}
		}
	}
}

// TestOpen checks which directories are accepted.
func TestOpen(t *testing.T) {
	marker := func(content string) map[string]string {
		return map[string]string{"kubeweir-state": content, "pods.image": "x", "lock": ""}
	}
	other := bytes.Repeat([]byte("o"), state.KeySize)
	for _, c := range []struct {
		name    string
		files   map[string]string
		sealed  []byte // key of an earlier process
		plain   bool   // written by an earlier process
		key     []byte
		want    string // in the error
		dropped string // in a log line
		isSaved bool
	}{
		{name: "a new folder"},
		{name: "a new folder, sealed", key: key},
		{name: "again", plain: true, isSaved: true},
		{name: "again, sealed", sealed: key, key: key, isSaved: true},
		{name: "another key", sealed: key, key: other, want: "encrypted with a key other than --state-key-file"},
		{name: "no key", sealed: key, want: "is encrypted: set --state-key-file"},
		{name: "a key now", plain: true, key: key, dropped: "not encrypted"},
		{name: "a newer format", files: marker(`{"format":99}`), dropped: "unknown format"},
		{name: "damaged", files: marker(`{"form`), dropped: "damaged"},
		{name: "empty", files: marker(``), dropped: "damaged"},
		{name: "another folder", files: map[string]string{"letter.txt": "Dear"}, want: "contains other files, such as letter.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range c.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if c.plain || c.sealed != nil {
				d := open(t, state.Options{Dir: dir, Key: c.sealed})
				h := newHistory(1, d)
				if err := errors.Join(h.step(), h.writer.Close(), d.Close()); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			d, err := state.Open(state.Options{Dir: dir, Key: c.key, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v, want one line with %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := log.String(); !strings.Contains(got, c.dropped) || c.dropped == "" && got != "" || strings.Count(got, "\n") > 1 {
				t.Errorf("log %q, want one line with %q", got, c.dropped)
			}
			names, err := d.Names()
			if err != nil || (len(names) == 1) != c.isSaved {
				t.Errorf("images %q, want them: %t, %v", names, c.isSaved, err)
			}
			if _, err := state.Open(state.Options{Dir: dir, Key: c.key}); err == nil || !strings.Contains(err.Error(), "in use by another process") {
				t.Errorf("a second process: %v", err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			again := open(t, state.Options{Dir: dir, Key: c.key})
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestBound checks that checkpoints stay within the limit, and that removing one makes room.
func TestBound(t *testing.T) {
	d := open(t, state.Options{FS: vfs.NewMem(), MaxBytes: 5000})
	noise := func(n int) []byte {
		out := make([]byte, n)
		random := rand.NewChaCha8([32]byte{})
		_, _ = random.Read(out)
		return out
	}
	write := func(name string, n int) error {
		w, err := d.Create(t.Context(), name, nil)
		if err != nil {
			return err
		}
		return errors.Join(w.Set(t.Context(), noise(n)), w.Commit(t.Context(), []byte("1")), w.Close())
	}
	if err := write("a", 4000); err != nil {
		t.Fatal(err)
	}
	if err := write("b", 4000); !errors.Is(err, checkpoint.ErrFull) {
		t.Errorf("error %v", err)
	}
	if bytes, _ := d.Bytes(); bytes < 4000 || bytes > 5000 {
		t.Errorf("%d bytes", bytes)
	}
	if err := errors.Join(d.Remove("a"), d.Remove("a"), write("b", 4000)); err != nil {
		t.Error(err)
	}
	if bytes, written := d.Bytes(); bytes < 4000 || bytes > 5000 || written < 8000 {
		t.Errorf("%d bytes, %d written", bytes, written)
	}
}

// TestParseKey checks which key files are accepted.
func TestParseKey(t *testing.T) {
	for content, ok := range map[string]bool{
		strings.Repeat("k", 32):                          true,
		"a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=\n": true,
		"": false, "short": false, strings.Repeat("k", 33): false, "a2tr": false,
	} {
		if got, err := state.ParseKey([]byte(content)); (err == nil) != ok || ok && len(got) != state.KeySize {
			t.Errorf("%q: %d bytes, %v", content, len(got), err)
		}
	}
}
