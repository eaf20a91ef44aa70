package storagetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/kubeweir/kubeweir/origin/storage"
)

func readCases() []Case {
	return []Case{
		{Name: "RangePrefix", run: testRangePrefix},
		{Name: "RangeExact", run: testRangeExact},
		{Name: "RangeOrder", run: testRangeOrder},
		{Name: "RangeFrom", run: testRangeFrom},
		{Name: "RangeLimit", run: testRangeLimit},
		{Name: "RangeKeysOnly", run: testRangeKeysOnly},
		{Name: "RangeLarge", run: testRangeLarge},
		{Name: "RangeRevision", run: testRangeRevision},
		{Name: "RangeOldRevisions", run: testRangeOldRevisions},
		{Name: "RangeFuture", run: testRangeFuture},
		{Name: "RangePagesOfOneRevision", run: testRangePages},
		{Name: "ReadOwnWrites", run: testReadOwnWrites},
	}
}

func (s *session) wantNames(opts storage.RangeOptions, want ...string) storage.RangeResult {
	s.Helper()
	res := s.scan(opts)
	if got := names(res.KVs, s.prefix); !slices.Equal(got, want) {
		s.Fatalf("range %+v: %q, want %q", opts, got, want)
	}
	return res
}

func testRangePrefix(s *session) {
	for _, name := range []string{"a/b", "a/b/x", "a/bc", "a/b-c", "a", "ab", "b", "a/b/y/z"} {
		s.put(name, "v", 0)
	}
	s.wantNames(storage.RangeOptions{Prefix: s.key("a/b/")}, "a/b/x", "a/b/y/z")
	s.wantNames(storage.RangeOptions{Prefix: s.key("a/b")}, "a/b", "a/b-c", "a/b/x", "a/b/y/z", "a/bc")
	s.wantNames(storage.RangeOptions{Prefix: s.key("a/")}, "a/b", "a/b-c", "a/b/x", "a/b/y/z", "a/bc")
	s.wantNames(storage.RangeOptions{Prefix: s.key("c")})
	s.wantNames(storage.RangeOptions{Prefix: s.prefix}, "a", "a/b", "a/b-c", "a/b/x", "a/b/y/z", "a/bc", "ab", "b")
}

func testRangeExact(s *session) {
	s.put("a/b/c", "v", 0)
	rev := s.put("a/b", "v", 0)
	s.put("a/bc", "v", 0)
	res := s.wantNames(storage.RangeOptions{Prefix: s.key("a/b"), Exact: true, Count: true, Limit: 1}, "a/b")
	if res.KVs[0].Revision != rev || res.More || res.Count != 1 {
		s.Errorf("result %+v", res)
	}
	s.wantNames(storage.RangeOptions{Prefix: s.key("a/"), Exact: true})
	s.wantNames(storage.RangeOptions{Prefix: s.key("a"), Exact: true})
	if res := s.wantNames(storage.RangeOptions{Prefix: s.key("zz"), Exact: true, Count: true}); res.Count != 0 || res.Revision < rev {
		s.Errorf("result %+v", res)
	}
}

// testRangeOrder checks that keys are in byte order, whatever the bytes.
func testRangeOrder(s *session) {
	all := []string{"", "-", ".", "/", "0", "A", "Z", "_", "a", "a-b", "a.b", "a/", "a/b", "aa", "z", "~", "ä", "\x7f", "\xc3", "\xfe", "\xff", "\xff\x00", "\xff\xff"}
	want := make([]string, len(all))
	for i, name := range rand.Perm(len(all)) {
		want[i] = "k" + all[name]
		s.put(want[i], "v", 0)
	}
	slices.Sort(want)
	s.wantNames(storage.RangeOptions{Prefix: s.key("k")}, want...)
	s.wantNames(storage.RangeOptions{Prefix: s.key("k\xff")}, "k\xff", "k\xff\x00", "k\xff\xff")
	s.wantNames(storage.RangeOptions{Prefix: s.key("k\xff\xff")}, "k\xff\xff")
}

func testRangeFrom(s *session) {
	for _, name := range []string{"a/1", "a/2", "a/2/x", "a/3", "b/1"} {
		s.put(name, "v", 0)
	}
	from := func(name string) storage.RangeOptions {
		return storage.RangeOptions{Prefix: s.key("a/"), From: s.key(name), Count: true}
	}
	for name, want := range map[string][]string{
		"a/2":     {"a/2", "a/2/x", "a/3"},
		"a/2\x00": {"a/2/x", "a/3"},
		"a/25":    {"a/3"},
		"a/":      {"a/1", "a/2", "a/2/x", "a/3"},
		"a/3":     {"a/3"},
		"a/3\x00": nil,
		"a/9":     nil,
		"b/0":     nil, // behind the prefix
		"":        {"a/1", "a/2", "a/2/x", "a/3"},
	} {
		if res := s.wantNames(from(name), want...); res.Count != int64(len(want)) || res.More {
			s.Errorf("from %q: count %d, more %v, want %d", name, res.Count, res.More, len(want))
		}
	}
}

func testRangeLimit(s *session) {
	for i := range 10 {
		s.put(fmt.Sprintf("k%d", i), "v", 0)
	}
	for _, tc := range []struct {
		limit int64
		from  string
		want  int
		more  bool
		count int64
	}{
		{0, "", 10, false, 10}, {1, "", 1, true, 10}, {9, "", 9, true, 10}, {10, "", 10, false, 10},
		{11, "", 10, false, 10}, {3, "k6", 3, true, 4}, {4, "k6", 4, false, 4}, {2, "k9", 1, false, 1}, {2, "kx", 0, false, 0},
	} {
		opts := storage.RangeOptions{Prefix: s.key("k"), Limit: tc.limit, Count: true}
		if tc.from != "" {
			opts.From = s.key(tc.from)
		}
		res := s.scan(opts)
		if len(res.KVs) != tc.want || res.More != tc.more || res.Count != tc.count {
			s.Errorf("limit %d from %q: %d keys, more %v, count %d, want %d, %v, %d", tc.limit, tc.from, len(res.KVs), res.More, res.Count, tc.want, tc.more, tc.count)
		}
	}
}

func testRangeKeysOnly(s *session) {
	a, b := s.put("a", "value", 0), s.put("b", "value", 0)
	res := s.wantNames(storage.RangeOptions{Prefix: s.prefix, KeysOnly: true, Limit: 2}, "a", "b")
	for i, want := range []uint64{a, b} {
		if kv := res.KVs[i]; len(kv.Value) != 0 || kv.Revision != want {
			s.Errorf("%s, want no value at %d", showKV(kv), want)
		}
	}
}

// testRangeLarge reads more keys and bytes than fit in any page that an engine may use.
func testRangeLarge(s *session) {
	const n = 2300
	want := make([]string, n)
	revs := make([]uint64, n)
	value := strings.Repeat("v", 3000)
	s.parallel(8, n, func(i int) {
		want[i] = fmt.Sprintf("k%05d", i)
		revs[i] = s.put(want[i], value, 0)
	})
	res := s.wantNames(storage.RangeOptions{Prefix: s.key("k"), Count: true}, want...)
	if res.Count != n || res.More {
		s.Errorf("count %d, more %v", res.Count, res.More)
	}
	for i, kv := range res.KVs {
		if string(kv.Value) != value || kv.Revision != revs[i] {
			s.Fatalf("%s, want revision %d", showKV(kv), revs[i])
		}
	}
	if res := s.scan(storage.RangeOptions{Prefix: s.key("k"), Limit: 1500, Count: true}); len(res.KVs) != 1500 || res.Count != n || !res.More {
		s.Errorf("limit 1500: %d keys, count %d, more %v", len(res.KVs), res.Count, res.More)
	}
}

// testRangeRevision checks that the returned state is exactly the state at the returned revision.
func testRangeRevision(s *session) {
	rev := s.put("a", "one", 0)
	res := s.scan(storage.RangeOptions{Prefix: s.prefix})
	if res.Revision < rev {
		s.Errorf("read at %d after a change at %d", res.Revision, rev)
	}
	second := s.put("a", "two", rev)
	old := s.scan(storage.RangeOptions{Prefix: s.prefix, Revision: res.Revision})
	if old.Revision != res.Revision || showKVs(old.KVs) != showKVs(res.KVs) {
		s.Errorf("at %d: %s, at %d it was %s", old.Revision, showKVs(old.KVs), res.Revision, showKVs(res.KVs))
	}
	if now := s.scan(storage.RangeOptions{Prefix: s.prefix}); now.Revision < second || now.KVs[0].Revision != second {
		s.Errorf("after a change at %d: %+v", second, now)
	}
}

// testRangeOldRevisions makes 600 random changes, then reads the state at some of their revisions.
func testRangeOldRevisions(s *session) {
	random := rand.New(rand.NewPCG(1, 2))
	h := newHistory(s.prefix)
	for i := range 600 {
		name := fmt.Sprintf("k%02d", random.IntN(25))
		at := h.revision(s.key(name), h.last())
		if at != 0 && random.IntN(4) == 0 {
			h.add(storage.KeyValue{Key: s.key(name), Revision: s.delete(name, at)})
		} else {
			value := fmt.Sprint("v", i)
			h.add(storage.KeyValue{Key: s.key(name), Value: []byte(value), Revision: s.put(name, value, at)})
		}
	}
	for range 120 {
		rev := h.changes[random.IntN(len(h.changes))].Revision
		opts := storage.RangeOptions{Prefix: s.key("k"), Revision: rev, Count: true}
		if random.IntN(2) == 0 {
			opts.From = s.key(fmt.Sprintf("k%02d", random.IntN(25)))
		}
		if random.IntN(2) == 0 {
			opts.Limit = 1 + random.Int64N(10)
		}
		want := h.at(rev)
		want = slices.DeleteFunc(want, func(kv storage.KeyValue) bool { return kv.Key < opts.From })
		count := int64(len(want))
		if opts.Limit > 0 && count > opts.Limit {
			want = want[:opts.Limit]
		}
		res := s.scan(opts)
		if res.Revision != rev || res.Count != count || res.More != (int64(len(want)) < count) || showKVs(res.KVs) != showKVs(want) {
			s.Fatalf("range %+v: revision %d, count %d, more %v\n  %s\nwant count %d\n  %s", opts, res.Revision, res.Count, res.More, showKVs(res.KVs), count, showKVs(want))
		}
		name := fmt.Sprintf("k%02d", random.IntN(25))
		one := s.scan(storage.RangeOptions{Prefix: s.key(name), Exact: true, Revision: rev})
		if at := h.revision(s.key(name), rev); (at == 0) != (len(one.KVs) == 0) || at != 0 && one.KVs[0].Revision != at {
			s.Fatalf("%s at %d: %s, want revision %d", name, rev, showKVs(one.KVs), at)
		}
	}
}

func testRangeFuture(s *session) {
	rev := s.put("a", "one", 0)
	for _, future := range []uint64{s.current() + 1000, 1 << 50, 1<<63 + 1, 1<<64 - 1} {
		_, err := s.engine.Range(s.ctx, storage.RangeOptions{Prefix: s.prefix, Revision: future})
		var fe *storage.FutureError
		if !errors.As(err, &fe) || fe.Current < rev || fe.Current >= future {
			s.Errorf("range at %d: %v, want a FutureError of at least %d", future, err, rev)
		}
	}
}

// testRangePages checks that a paged list at one revision returns the state at that revision,
// despite concurrent writes.
func testRangePages(s *session) {
	want := map[string]uint64{}
	for i := range 30 {
		name := fmt.Sprintf("k%02d", i)
		want[name] = s.put(name, "old", 0)
	}
	opts := storage.RangeOptions{Prefix: s.key("k"), Limit: 7}
	for page := 0; ; page++ {
		res := s.scan(opts)
		for _, kv := range res.KVs {
			name := strings.TrimPrefix(kv.Key, s.prefix)
			if want[name] != kv.Revision || string(kv.Value) != "old" {
				s.Fatalf("page %d: %s, want revision %d", page, showKV(kv), want[name])
			}
			delete(want, name)
		}
		if !res.More {
			break
		}
		opts.Revision, opts.From = res.Revision, res.KVs[len(res.KVs)-1].Key+"\x00"
		for i := range 30 {
			name := fmt.Sprintf("k%02d", i)
			kv := s.get(name)
			switch {
			case kv == nil:
				s.put(name, "new", 0)
			case i%3 == page%3:
				s.delete(name, kv.Revision)
			default:
				s.put(name, "new", kv.Revision)
			}
		}
		s.put(fmt.Sprintf("kk%d", page), "new", 0)
	}
	if len(want) != 0 {
		s.Errorf("pages left out %v", want)
	}
}

// testReadOwnWrites checks that a client reads its own writes on every engine.
func testReadOwnWrites(s *session) {
	engines := s.engines()
	rev := uint64(0)
	for i := range 200 {
		writer, reader := engines[i%len(engines)], engines[(i+1)%len(engines)]
		var err error
		rev, err = writer.Put(s.ctx, s.key("a"), fmt.Append(nil, i), storage.Precondition{Revision: rev}, 0)
		if err != nil {
			s.Fatal(err)
		}
		kv, err := getFrom(s.ctx, reader, s.key("a"))
		if err != nil || kv == nil || kv.Revision != rev {
			s.Fatalf("read %s (%v) after a change at %d", showPointer(kv), err, rev)
		}
		if now, err := reader.CurrentRevision(s.ctx); err != nil || now < rev {
			s.Fatalf("current revision %d (%v) after a change at %d", now, err, rev)
		}
	}
}
