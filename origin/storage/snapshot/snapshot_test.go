package snapshot

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeweir/kubeweir/origin/storage"
)

var entries = []storage.Entry{
	{KeyValue: storage.KeyValue{Key: "/registry/b", Value: []byte("two"), Revision: 3}},
	{KeyValue: storage.KeyValue{Key: "/registry/a\x00", Value: []byte{}, Revision: 2}},
	{KeyValue: storage.KeyValue{Key: "/registry/events/e", Value: bytes.Repeat([]byte("x"), 3<<20), Revision: 9}, Expires: time.UnixMilli(1_800_000_000_123)},
}

func write(t *testing.T, entries []storage.Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	h := Header{Revision: 12, Keys: len(entries), Created: time.Unix(1_800_000_000, 0).UTC(), Cluster: "uid", Program: "v1"}
	if err := Write(&b, h, each(entries)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func each(entries []storage.Entry) func(func(storage.Entry) error) error {
	return func(f func(storage.Entry) error) error {
		for _, e := range entries {
			if err := f(e); err != nil {
				return err
			}
		}
		return nil
	}
}

// read returns the keys of a file, and the error that ends it.
func read(in io.Reader) (*Reader, []storage.Entry, error) {
	r, err := NewReader(in)
	if err != nil {
		return nil, nil, err
	}
	var got []storage.Entry
	for {
		e, err := r.Next()
		if err != nil {
			return r, got, err
		}
		e.Value = append([]byte{}, e.Value...)
		got = append(got, e)
	}
}

func TestRoundTrip(t *testing.T) {
	file := write(t, entries)
	r, got, err := read(iotest.HalfReader(bytes.NewReader(file)))
	if !errors.Is(err, io.EOF) || !reflect.DeepEqual(got, entries) {
		t.Fatalf("%d keys, %v", len(got), err)
	}
	sum := sha256.Sum256(file[:len(file)-sha256.Size])
	if h := r.Header(); h.Revision != 12 || h.Keys != 3 || h.Cluster != "uid" || r.Size() != int64(len(file)) || !bytes.Equal(r.Digest(), sum[:]) {
		t.Errorf("%+v, %d bytes, %x", h, r.Size(), r.Digest())
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %v", err)
	}
}

// TestEveryByteCounts flips each byte of a file, and cuts it off at each.
func TestEveryByteCounts(t *testing.T) {
	file := write(t, entries[:2])
	for i := range file {
		flipped := bytes.Clone(file)
		flipped[i] ^= 0x40
		if _, _, err := read(bytes.NewReader(flipped)); errors.Is(err, io.EOF) {
			t.Errorf("byte %d flipped: not noticed", i)
		}
		_, _, err := read(bytes.NewReader(file[:i]))
		if damaged := new(DamagedError); !errors.Is(err, ErrFormat) && (!errors.As(err, &damaged) || damaged.Offset > int64(i)) {
			t.Errorf("cut off at %d: %v", i, err)
		}
	}
	if _, _, err := read(bytes.NewReader(append(file, 0))); err == nil || !strings.Contains(err.Error(), "more behind the end") {
		t.Errorf("with another byte: %v", err)
	}
}

func TestErrors(t *testing.T) {
	file := write(t, entries)
	failed := errors.New("failed")
	if _, _, err := read(io.MultiReader(bytes.NewReader(file[:len(file)-50]), iotest.ErrReader(failed))); !errors.Is(err, failed) {
		t.Errorf("a read that fails: %v", err)
	}
	newer := bytes.Replace(file, []byte("snapshot 1\n"), []byte("snapshot 2\n"), 1)
	if _, _, err := read(bytes.NewReader(newer)); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), `version "2"`) {
		t.Errorf("a newer version: %v", err)
	}
	if err := Write(io.Discard, Header{Revision: 12, Keys: 2}, each(entries)); err == nil {
		t.Error("too many keys were written")
	}
	if err := Write(io.Discard, Header{Revision: 5, Keys: 3}, each(entries)); err == nil {
		t.Error("a key of a later revision was written")
	}
}

func FuzzReader(f *testing.F) {
	var b bytes.Buffer
	if err := Write(&b, Header{Revision: 12, Keys: 2}, each(entries[:2])); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(magic + "\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, file []byte) {
		_, got, err := read(bytes.NewReader(file))
		if err == nil || len(got) > len(file) {
			t.Errorf("%d keys, %v", len(got), err)
		}
	})
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "backup")
	save := func(content string, overwrite bool) error {
		f, err := Create(path, overwrite)
		if err != nil {
			return err
		}
		defer f.Abort()
		if _, err := io.WriteString(f, content); err != nil {
			return err
		}
		return f.Commit()
	}
	holds := func(want string) {
		t.Helper()
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
		if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
			t.Errorf("files: %v, %v", all, err)
		}
	}
	if err := save("one", false); err != nil {
		t.Fatal(err)
	}
	holds("one")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := save("two", false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("overwritten: %v", err)
	}
	holds("one")
	if err := save("two", true); err != nil {
		t.Error(err)
	}
	holds("two")

	// Another process creates the file meanwhile.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("overwritten: %v", err)
	}
	holds("other")
	if f, err = Create(path, true); err != nil {
		t.Fatal(err)
	}
	f.Abort()
	holds("other")
}

func TestNamespaceUID(t *testing.T) {
	ns := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "some-uid"}}
	raw, err := ns.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, Raw: raw}
	value, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	value = append([]byte("k8s\x00"), value...)
	if got := NamespaceUID(value); got != "some-uid" {
		t.Errorf("%q", got)
	}
	for i := range value {
		NamespaceUID(value[:i]) // does not panic
	}
	if got := NamespaceUID([]byte(`{"metadata":{}}`)); got != "" {
		t.Errorf("%q", got)
	}
}
