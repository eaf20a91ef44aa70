package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// readSnapshot returns the keys of a snapshot.
func readSnapshot(t testing.TB, s storage.Snapshot) map[string]storage.Entry {
	t.Helper()
	out := map[string]storage.Entry{}
	if err := s.Each(t.Context(), func(e storage.Entry) error {
		e.Value = append([]byte{}, e.Value...)
		out[e.Key] = e
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(out) != s.Len() {
		t.Errorf("%d keys, want %d", len(out), s.Len())
	}
	return out
}

func takeSnapshot(t testing.TB, e *Engine) storage.Snapshot {
	t.Helper()
	s, err := e.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// iterate returns the keys of a map as Restore reads them.
func iterate(entries map[string]storage.Entry) func() (storage.Entry, error) {
	next, _ := iter.Pull(maps.Values(entries))
	return func() (storage.Entry, error) {
		e, ok := next()
		if !ok {
			return e, io.EOF
		}
		return e, nil
	}
}

// TestSnapshotIsUnaffectedByChanges checks that a snapshot shows its revision, whatever happens to the store.
func TestSnapshotIsUnaffectedByChanges(t *testing.T) {
	opts := memory()
	opts.HistoryAge = -1
	e := openAt(t, opts)
	defer mustClose(t, e)
	rev := mustPut(t, e, "/a", "one", 0)
	gone := mustPut(t, e, "/b", "two", 0)
	if _, err := e.Put(t.Context(), "/event", []byte("e"), storage.Precondition{}, time.Hour); err != nil {
		t.Fatal(err)
	}
	s := takeSnapshot(t, e)
	last := mustPut(t, e, "/a", "three", rev)
	if _, err := e.Delete(t.Context(), "/b", storage.Precondition{Revision: gone}); err != nil {
		t.Fatal(err)
	}
	if err := e.Compact(t.Context(), last+1); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := e.at("/a", rev); errors.Is(err, storage.ErrCompacted) {
			break // the history loop has removed it
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := e.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
		t.Fatal(err)
	}
	got := readSnapshot(t, s)
	if string(got["/a"].Value) != "one" || got["/a"].Revision != rev || string(got["/b"].Value) != "two" || len(got) != 3 || s.Revision() != 4 {
		t.Errorf("%+v at %d", got, s.Revision())
	}
	if until := time.Until(got["/event"].Expires); until < 50*time.Minute || until > time.Hour || !got["/a"].Expires.IsZero() {
		t.Errorf("expires in %v, %v", until, got["/a"].Expires)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

func TestSnapshotsAreLimited(t *testing.T) {
	e := openAt(t, memory())
	mustPut(t, e, "/a", "one", 0)
	var open []storage.Snapshot
	for range maxSnapshots {
		open = append(open, takeSnapshot(t, e))
	}
	if _, err := e.Snapshot(t.Context()); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("one too many: %v", err)
	}
	if err := open[0].Close(); err != nil {
		t.Error(err)
	}
	takeSnapshot(t, e) // stays open
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := open[1].Each(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	mustClose(t, e)
	if err := open[1].Each(t.Context(), nil); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if err := open[1].Close(); err != nil {
		t.Error(err)
	}
}

// TestStoreClosesDuringSnapshot checks that a slow reader does not delay the end of the store.
func TestStoreClosesDuringSnapshot(t *testing.T) {
	e := openAt(t, memory())
	for i := range 5 {
		mustPut(t, e, fmt.Sprint("/", i), strings.Repeat("x", 1<<20), 0)
	}
	s := takeSnapshot(t, e)
	err := s.Each(t.Context(), func(storage.Entry) error {
		mustClose(t, e)
		return nil
	})
	if !errors.Is(err, storage.ErrClosed) {
		t.Error(err)
	}
}

// TestSnapshotIsAPrefix takes snapshots while clients write. Each holds the result of all changes up to its
// revision, and everything that was acknowledged before it was requested.
func TestSnapshotIsAPrefix(t *testing.T) {
	e := openAt(t, Options{Dir: t.TempDir(), HistoryAge: -1})
	defer mustClose(t, e)
	r := newRecord()
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			revs := map[string]uint64{}
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("/%d/%d", w, i%10)
				var err error
				if i%7 == 6 && revs[key] != 0 {
					_, err = r.delete(e, key, revs[key])
					revs[key] = 0
				} else {
					revs[key], err = r.put(e, key, fmt.Sprint(w, ".", i), revs[key])
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	type taken struct {
		storage.Snapshot
		after uint64 // highest revision acknowledged before
	}
	var all []taken
	for range 20 {
		after := r.write("-", "-")
		s := taken{takeSnapshot(t, e), after}
		got := readSnapshot(t, s)
		dir := filepath.Join(t.TempDir(), "restored")
		if _, err := Restore(dir, s.Revision(), s.Revision()+1, iterate(got)); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		restored := openAt(t, Options{Dir: dir, HistoryAge: -1})
		mustVerify(t, restored)
		mustClose(t, restored)
	}
	close(stop)
	writers.Wait()
	acked := r.copy()
	for _, s := range all {
		if s.Revision() < s.after {
			t.Errorf("at %d, but %d was acknowledged before", s.Revision(), s.after)
		}
		want := map[string]uint64{}
		for rev := uint64(2); rev <= s.Revision(); rev++ {
			l, ok := acked[rev]
			if !ok {
				t.Fatalf("revision %d was not acknowledged", rev)
			}
			if want[l.key] = rev; l.kind == storage.Deleted {
				delete(want, l.key)
			}
		}
		got := map[string]uint64{}
		s.Snapshot.(*Snapshot).index.tree.Scan(func(key string, rev uint64) bool {
			got[key] = rev
			return true
		})
		if !maps.Equal(got, want) {
			t.Errorf("at %d: %v, want %v", s.Revision(), got, want)
		}
	}
}

func TestRestore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "store")
	soon := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	entries := map[string]storage.Entry{
		"/a": {KeyValue: storage.KeyValue{Key: "/a", Value: []byte("one"), Revision: 7}},
		"/b": {KeyValue: storage.KeyValue{Key: "/b", Value: []byte{}, Revision: 3}, Expires: soon},
		// Already expired: it is deleted when the store runs.
		"/c": {KeyValue: storage.KeyValue{Key: "/c", Value: []byte("three"), Revision: 4}, Expires: time.UnixMilli(1)},
	}
	if _, err := Restore(dir, 9, 1009, iterate(entries)); err != nil {
		t.Fatal(err)
	}
	e := openAt(t, Options{Dir: dir, HistoryAge: -1})
	w, err := e.Watch(t.Context(), storage.WatchOptions{After: 1008})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := w.Next(t.Context()); err != nil || b.Events[0].KV.Key != RestoredKey || b.Events[0].KV.Revision != 1009 {
		t.Errorf("%+v, %v", b, err)
	}
	for {
		res, err := e.Range(t.Context(), storage.RangeOptions{Prefix: "/"})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.KVs) == 2 { // /c is gone
			if res.Revision != 1010 || res.KVs[0].Revision != 7 || string(res.KVs[0].Value) != "one" || res.KVs[1].Revision != 3 {
				t.Errorf("%+v", res)
			}
			break
		}
	}
	mustVerify(t, e)
	if got := readSnapshot(t, takeSnapshot(t, e))["/b"].Expires; !got.Equal(soon) {
		t.Errorf("expires at %v, want %v", got, soon)
	}
	for _, after := range []uint64{8, 1007} {
		w, err := e.Watch(t.Context(), storage.WatchOptions{After: after})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Next(t.Context()); !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("watch after %d: %v", after, err)
		}
	}
	if rev := mustPut(t, e, "/a", "two", 7); rev != 1011 {
		t.Errorf("the next change has the revision %d", rev)
	}
	mustVerify(t, e)
	mustClose(t, e)

	if _, err := Restore(dir, 9, 1009, iterate(entries)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over another store: %v", err)
	}
	if all, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(all) != 1 {
		t.Errorf("left behind: %v, %v", all, err)
	}
}

func TestRestoreErrors(t *testing.T) {
	failed := errors.New("failed")
	entry := func(key string, rev uint64) storage.Entry {
		return storage.Entry{KeyValue: storage.KeyValue{Key: key, Revision: rev}}
	}
	for _, c := range []struct {
		name    string
		current uint64
		entries []storage.Entry
		end     error
		want    string
	}{
		{"no new revision", 9, nil, io.EOF, "must be higher"},
		{"an error", 10, []storage.Entry{entry("/a", 2)}, failed, "failed"},
		{"one revision", 10, []storage.Entry{entry("/a", 2), entry("/b", 2)}, io.EOF, "the key /b has the revision 2 of another key"},
		{"one key", 10, []storage.Entry{entry("/a", 2), entry("/a", 3)}, io.EOF, "a key occurs twice"},
		{"the future", 10, []storage.Entry{entry("/a", 10)}, io.EOF, "the key /a has the revision 10, which must be from 2 to 9"},
		{"no key", 10, []storage.Entry{entry("", 2)}, io.EOF, `the key "" is empty`},
	} {
		parent := t.TempDir()
		_, err := Restore(filepath.Join(parent, "store"), 9, c.current, func() (storage.Entry, error) {
			if len(c.entries) == 0 {
				return storage.Entry{}, c.end
			}
			e := c.entries[0]
			c.entries = c.entries[1:]
			return e, nil
		})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", c.name, err)
		}
		if all, err := os.ReadDir(parent); err != nil || len(all) > 0 {
			t.Errorf("%s: left behind: %v, %v", c.name, all, err)
		}
	}
}
