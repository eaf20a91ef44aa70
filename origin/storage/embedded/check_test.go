package embedded

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/origin/storage"
)

// fillAll makes a store with objects, updates, deletions, a time to live, and compacted history.
func fillAll(t testing.TB, e *Engine, n int) {
	t.Helper()
	revs := map[string]uint64{}
	for i := range n {
		key := fmt.Sprintf("/registry/configmaps/default/%04d", i%(n*2/3))
		revs[key] = mustPut(t, e, key, strings.Repeat(fmt.Sprint(i), 20), revs[key])
		if i%11 == 10 {
			if _, err := e.Delete(t.Context(), key, storage.Precondition{Revision: revs[key]}); err != nil {
				t.Fatal(err)
			}
			revs[key] = 0
		}
		if i == n*3/4 {
			if err := e.Compact(t.Context(), uint64(n/2)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := e.Put(t.Context(), "/registry/events/default/e", []byte("event"), storage.Precondition{}, time.Hour); err != nil {
		t.Fatal(err)
	}
}

func mustCheck(t testing.TB, dir string) *Report {
	t.Helper()
	r, err := Check(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func copyDir(t testing.TB, from string) string {
	t.Helper()
	to := t.TempDir()
	if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

func TestCheckIntactStores(t *testing.T) {
	dir := t.TempDir()
	e := openAt(t, Options{Dir: dir, HistoryAge: -1})
	fillAll(t, e, 600)
	awaitNoted(t, e)
	if _, err := Check(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a store in use: %v", err)
	}
	killed := copyDir(t, dir)
	keys, revision := e.mu.index.tree.Len(), e.mu.revision
	mustClose(t, e)
	for name, dir := range map[string]string{"closed": dir, "killed": killed} {
		r := mustCheck(t, dir)
		if len(r.Faults) > 0 || r.Keys != keys || r.Revision != revision || r.Files < 3 || r.Bytes == 0 || r.Changes < keys {
			t.Errorf("%s: %+v, want %d keys at %d", name, r, keys, revision)
		}
		again := openAt(t, Options{Dir: dir, HistoryAge: -1})
		mustVerify(t, again)
		mustClose(t, again)
	}
	if _, err := Check(t.Context(), filepath.Join(dir, "none")); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("no store: %v", err)
	}
}

// awaitNoted waits until the newest revision is in the file REVISION.
func awaitNoted(t testing.TB, e *Engine) {
	t.Helper()
	path := filepath.Join(e.dir, highWaterFile)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for slot := 0; slot*slotSpace < len(b); slot++ {
			if parseSlot(b[slot*slotSpace:]) == e.mu.revision {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the revision is not noted")
		}
	}
}

// holdsData matches the files that Check reads.
var holdsData = regexp.MustCompile(`\.sst$|\.log$|/MANIFEST-|/REVISION$`)

// TestCheckFindsFlippedBytes flips bytes of every file that holds data, of a store that was closed and of one
// that was killed. Each is found, with its file.
func TestCheckFindsFlippedBytes(t *testing.T) {
	dir := t.TempDir()
	e := openAt(t, Options{Dir: dir, HistoryAge: -1})
	fillAll(t, e, 300)
	if err := e.db.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		mustPut(t, e, fmt.Sprint("/registry/secrets/", i), strings.Repeat("s", 200), 0)
	}
	awaitNoted(t, e)
	killed := copyDir(t, dir)
	mustClose(t, e)
	flips := soak.Cases(8, 500) // per file; Pebble searches for the flipped bit, which takes long
	for name, dir := range map[string]string{"closed": dir, "killed": killed} {
		clean := mustCheck(t, dir)
		if len(clean.Faults) > 0 {
			t.Fatalf("%s: %v", name, clean.Faults)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if holdsData.MatchString(path) {
				flipBytes(t, dir, path, flips, clean, name == "closed" && strings.HasSuffix(path, ".log"))
			}
		}
	}
}

func flipBytes(t *testing.T, dir, path string, flips int, clean *Report, obsolete bool) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := len(content)
	switch {
	case strings.HasSuffix(path, highWaterFile): // nothing between the copies
		n = min(n, slotSize)
	case strings.HasSuffix(path, ".log"): // not the zeros behind the log
		n = len(strings.TrimRight(string(content), "\x00"))
	}
	if n == 0 {
		return
	}
	found, harmless := 0, 0
	for i := range min(flips, n) {
		at := i * n / min(flips, n)
		flipped := append([]byte{}, content...)
		flipped[at] ^= 1 << (i % 8)
		if err := os.WriteFile(path, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		r := mustCheck(t, dir)
		switch {
		case len(r.Faults) > 0 && (r.Faults[0].File != "" || len(r.Faults) > 1):
			found++
		case len(r.Faults) == 0 && r.Keys == clean.Keys && r.Revision == clean.Revision && r.Changes == clean.Changes && strings.HasSuffix(path, ".log"):
			harmless++ // behind the last change, or in a mark
		default:
			t.Errorf("%s, byte %d of %d: %+v", filepath.Base(path), at, n, r)
		}
	}
	t.Logf("%s: %d bytes, %d flips found, %d without effect", filepath.Base(path), n, found, harmless)
	if found == 0 && !obsolete { // the tables have the changes of the log
		t.Errorf("%s: no flip was found", path)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCheckNamesKeys checks that damage to a table is reported with file, offset and the keys in the block.
func TestCheckNamesKeys(t *testing.T) {
	dir := t.TempDir()
	e := openAt(t, Options{Dir: dir, HistoryAge: -1})
	for i := range 300 {
		mustPut(t, e, fmt.Sprintf("/registry/secrets/%03d", i), fmt.Sprintf("the secret number %03d%s", i, strings.Repeat("x", 500)), 0)
	}
	mustClose(t, e)
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("%v, %v", tables, err)
	}
	done := false
	for _, path := range tables {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := strings.Index(string(content), "the secret number 150")
		if at < 0 {
			continue
		}
		done = true
		content[at] ^= 1
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		r := mustCheck(t, dir)
		named := map[string]bool{}
		for _, f := range r.Faults {
			if f.File != filepath.Base(path) || f.Offset > int64(at) || f.Offset < int64(at-16<<10) {
				t.Errorf("%s; the damage is at %d of %s", f, at, filepath.Base(path))
			}
			named[f.Key] = true
		}
		if !named["/registry/secrets/150 at revision 152"] || named["/registry/secrets/100 at revision 102"] || named["/registry/secrets/200 at revision 202"] || named[""] {
			t.Errorf("%d faults, first %v", len(r.Faults), r.Faults[:min(len(r.Faults), 3)])
		}
		if r.Keys != 300 || r.Revision != 301 {
			t.Errorf("%d keys at %d", r.Keys, r.Revision)
		}
	}
	if !done {
		t.Error("the value is in no table")
	}
}

// TestCheckFindsBrokenInvariants changes what Pebble holds: all checksums are right.
func TestCheckFindsBrokenInvariants(t *testing.T) {
	e := func(dir string) *Engine { return openAt(t, Options{Dir: dir, HistoryAge: -1}) }
	for _, c := range []struct {
		name string
		do   func(db *pebble.DB) error
		want string
	}{
		{"no change", func(db *pebble.DB) error { return db.Delete(logKey(4), pebble.Sync) }, "/b at revision 4: its change is missing from the log"},
		{"no version", func(db *pebble.DB) error { return db.Delete(appendVersionKey(nil, "/b", 4), pebble.Sync) }, "/b at revision 4: it is in the log, and its version is missing"},
		{"another key", func(db *pebble.DB) error {
			return db.Set(logKey(4), appendEntry(nil, storage.Created, 0, "/x", nil), pebble.Sync)
		}, "/b at revision 4: the log has /x at this revision"},
		{"another version before", func(db *pebble.DB) error {
			return db.Set(logKey(3), appendEntry(nil, storage.Created, 0, "/a", nil), pebble.Sync)
		}, "/a at revision 3: it replaces revision 0, and the version before it is 2"},
		{"no garbage", func(db *pebble.DB) error { return db.Delete(garbageKey(3), pebble.Sync) }, "/a at revision 3: its garbage record is missing"},
		{"a deletion", func(db *pebble.DB) error { return db.Set(appendVersionKey(nil, "/b", 4), versionGone, pebble.Sync) }, "/b at revision 4: it is a deletion in the log or in the key space"},
		{"time to live", func(db *pebble.DB) error { return db.Set(expiryKey(1, 2), []byte("/a"), pebble.Sync) }, "/a at revision 2: it has a time to live"},
		{"mark", func(db *pebble.DB) error { return db.Set(markKey(99), make([]byte, 8), pebble.Sync) }, "a mark without its change"},
		{"entry", func(db *pebble.DB) error { return db.Set(logKey(4), []byte("?"), pebble.Sync) }, "revision 4: the data are damaged: a change"},
		{"lost", func(db *pebble.DB) error {
			return errors.Join(db.DeleteRange(logKey(4), logKey(6), pebble.Sync), db.Delete(appendVersionKey(nil, "/b", 4), pebble.Sync), db.Delete(appendVersionKey(nil, "/c", 5), pebble.Sync))
		}, "REVISION: changes up to revision 5 were acknowledged, those after 3 are missing"},
		{"format", func(db *pebble.DB) error { return db.Set(metaFormat, []byte{9}, pebble.Sync) }, "the format of the store: format 9"},
		{"no format", func(db *pebble.DB) error { return db.Delete(metaFormat, pebble.Sync) }, "the format of the store: "},
		{"compacted", func(db *pebble.DB) error { return db.Set(metaCompacted, []byte{9}, pebble.Sync) }, "the oldest revision: the data are damaged"},
	} {
		dir := t.TempDir()
		s := e(dir)
		first := mustPut(t, s, "/a", "1", 0)
		mustPut(t, s, "/a", "2", first)
		mustPut(t, s, "/b", "1", 0)
		mustPut(t, s, "/c", "1", 0)
		if err := c.do(s.db); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		r := mustCheck(t, dir)
		var all strings.Builder
		for _, f := range r.Faults {
			fmt.Fprintln(&all, f)
		}
		if !strings.Contains(all.String(), c.want) {
			t.Errorf("%s: %s, want %s", c.name, all.String(), c.want)
		}
	}
}
