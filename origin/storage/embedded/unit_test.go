package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// randomKey has few bytes, among them those that the layout treats differently.
func randomKey(random *rand.Rand) string {
	const bytes = "\x00\x00\x01\x02/ab\xfe\xff\xff"
	key := make([]byte, 1+random.IntN(6))
	for i := range key {
		key[i] = bytes[random.IntN(len(bytes))]
	}
	return string(key)
}

// TestVersionKeys are in the order of their keys, then newest first, and read back.
func TestVersionKeys(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	type version struct {
		key string
		rev uint64
	}
	var all []version
	for range 2000 {
		all = append(all, version{randomKey(random), uint64(random.IntN(3)) + 1<<random.IntN(60)})
	}
	slices.SortFunc(all, func(a, b version) int {
		if c := strings.Compare(a.key, b.key); c != 0 {
			return c
		}
		return -1 * compare(a.rev, b.rev)
	})
	var before []byte
	for _, v := range all {
		at := appendVersionKey(nil, v.key, v.rev)
		if bytes.Compare(before, at) > 0 {
			t.Fatalf("%q at %d is before %q", v.key, v.rev, before)
		}
		before = at
		escaped, rev, err := splitVersionKey(at)
		if err != nil || unescape(escaped) != v.key || rev != v.rev {
			t.Fatalf("%q at %d reads %q at %d, %v", v.key, v.rev, unescape(escaped), rev, err)
		}
		end := append(appendEscaped([]byte{spaceKeys}, v.key), escape, behind)
		if bytes.Compare(at, end) >= 0 || bytes.Compare(end, appendVersionKey(nil, v.key+"\x00", math.MaxUint64)) >= 0 {
			t.Fatalf("the end of %q is in the wrong place", v.key)
		}
	}
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// TestKeyBounds hold exactly the versions of the keys that have the prefix and are not before from.
func TestKeyBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for range 20000 {
		key, prefix, from := randomKey(random), randomKey(random), randomKey(random)
		if random.IntN(2) == 0 {
			prefix = key[:random.IntN(len(key)+1)]
		}
		if random.IntN(4) == 0 {
			from = ""
		}
		lower, upper := keyBounds(prefix, from)
		at := appendVersionKey(nil, key, random.Uint64())
		in := bytes.Compare(lower, at) <= 0 && bytes.Compare(at, upper) < 0
		if want := strings.HasPrefix(key, prefix) && key >= from; in != want {
			t.Fatalf("%q in %q from %q: %v, want %v", key, prefix, from, in, want)
		}
	}
}

// TestIndex counts as a list would.
func TestIndex(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	x := newIndex()
	all := map[string]uint64{}
	for i := range uint64(6000) {
		key := randomKey(random) + randomKey(random)
		if random.IntN(3) == 0 {
			x.set(key, 0)
			delete(all, key)
		} else {
			x.set(key, i+1)
			all[key] = i + 1
		}
		if i%20 != 0 {
			continue
		}
		prefix, from := key[:random.IntN(len(key)+1)], ""
		if random.IntN(2) == 0 {
			from = randomKey(random)
		}
		want, size := 0, 0
		for k := range all {
			size += len(k)
			if strings.HasPrefix(k, prefix) && k >= from {
				want++
			}
		}
		if got := x.count(prefix, from); got != want {
			t.Fatalf("%q from %q: %d, want %d", prefix, from, got, want)
		}
		if x.bytes != size || x.get(key) != all[key] {
			t.Fatalf("%d bytes, want %d; %q at %d, want %d", x.bytes, size, key, x.get(key), all[key])
		}
	}
}

// TestIndexCopy does not change with the original.
func TestIndexCopy(t *testing.T) {
	x := newIndex()
	for i := range 1000 {
		x.set(fmt.Sprint(i), 1)
	}
	c := x.copy()
	for i := range 1000 {
		x.set(fmt.Sprint(i), uint64(i%2)*2)
	}
	if c.tree.Len() != 1000 || c.get("500") != 1 || x.tree.Len() != 500 {
		t.Errorf("%d, %d, %d", c.tree.Len(), c.get("500"), x.tree.Len())
	}
}

// TestWatchersPublish: those are woken that a look at each would find.
func TestWatchersPublish(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	ws := watchers{}
	var all []*watcher
	for i := range uint64(3000) {
		switch random.IntN(3) {
		case 0:
			w := &watcher{prefix: randomKey(random)[1:], after: i + uint64(random.IntN(20)), wake: make(chan struct{}, 1)}
			ws[w] = struct{}{}
			all = append(all, w)
		case 1:
			if len(all) > 0 {
				n := random.IntN(len(all))
				delete(ws, all[n])
				all = slices.Delete(all, n, n+1)
			}
		}
		key := randomKey(random)
		ws.publish([]changed{{change: &change{key: key, revision: i}}}, i)
		for _, w := range all {
			want := strings.HasPrefix(key, w.prefix) && i > w.after
			if got := w.next != 0; got != want || got && w.next != i || got != (len(w.wake) == 1) {
				t.Fatalf("%q of %q after %d at %d: next %d", key, w.prefix, w.after, i, w.next)
			}
			if w.next != 0 {
				w.next = 0
				<-w.wake
			}
		}
	}
}

// FuzzParseEntry: bytes from a damaged disk are an error or a change, never a panic; and what is written reads back.
func FuzzParseEntry(f *testing.F) {
	f.Add(appendEntry(nil, storage.Updated, 1<<40, "/registry/a", []byte("value")))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{3, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		ent, err := parseEntry(b)
		if err != nil {
			if !errors.Is(err, errCorrupt) {
				t.Errorf("error %v", err)
			}
			return
		}
		again, err := parseEntry(appendEntry(nil, ent.kind, ent.previous, string(ent.key), ent.value))
		if err != nil || again.kind != ent.kind || again.previous != ent.previous || !bytes.Equal(again.key, ent.key) || !bytes.Equal(again.value, ent.value) {
			t.Errorf("%+v, %v, want %+v", again, err, ent)
		}
	})
}
