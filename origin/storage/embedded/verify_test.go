package embedded

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// A logged change is one in the log of a store.
type logged struct {
	kind     storage.EventType
	key      string
	value    string
	previous uint64
}

// contents is all that a store holds on disk.
type contents struct {
	log      map[uint64]logged
	versions map[string]map[uint64]bool // key, revision, whether it is a deletion
	garbage  map[uint64]logged          // kind Deleted if the change is garbage too
	expiry   map[string]pending
}

func readContents(e *Engine) (*contents, error) {
	c := &contents{log: map[uint64]logged{}, versions: map[string]map[uint64]bool{}, garbage: map[uint64]logged{}, expiry: map[string]pending{}}
	err := e.scan(nil, nil, func(iter *pebble.Iterator) error {
		for ok := iter.First(); ok; ok = iter.Next() {
			v, err := iter.ValueAndErr()
			if err != nil {
				return err
			}
			if err := c.add(iter.Key(), v); err != nil {
				return err
			}
		}
		return nil
	})
	return c, err
}

func (c *contents) add(key, v []byte) error {
	switch key[0] {
	case spaceLog:
		rev, err := number(key)
		if err != nil {
			return err
		}
		ent, err := parseEntry(v)
		if err != nil {
			return err
		}
		c.log[rev] = logged{ent.kind, string(ent.key), string(ent.value), ent.previous}
	case spaceKeys:
		escaped, rev, err := splitVersionKey(key)
		if err != nil {
			return err
		}
		name := unescape(escaped)
		if c.versions[name] == nil {
			c.versions[name] = map[uint64]bool{}
		}
		c.versions[name][rev] = len(v) > 0
	case spaceGarbage:
		rev, err := number(key)
		if err != nil {
			return err
		}
		previous, deleted, name, err := parseGarbage(v)
		if err != nil {
			return err
		}
		l := logged{kind: storage.Updated, key: name, previous: previous}
		if deleted {
			l.kind = storage.Deleted
		}
		c.garbage[rev] = l
	case spaceExpiry:
		at, rev, err := parseExpiryKey(key)
		if err != nil {
			return err
		}
		c.expiry[string(v)] = pending{rev, at}
	case spaceMeta, spaceMarks:
	default:
		return fmt.Errorf("key %q", key)
	}
	return nil
}

// verify checks every invariant of the layout and of what is in memory. Nothing may be written meanwhile.
func verify(e *Engine) error {
	c, err := readContents(e)
	if err != nil {
		return err
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for rev := max(e.mu.compacted, 2); rev <= e.mu.revision; rev++ {
		if _, ok := c.log[rev]; !ok {
			fail("revision %d is not in the log", rev)
		}
	}
	versions := 0
	for key, revs := range c.versions {
		versions += len(revs)
		c.verifyKey(key, revs, e.mu.compacted, e.mu.index.get(key), fail)
	}
	for rev, l := range c.log {
		if _, ok := c.versions[l.key][rev]; !ok {
			fail("revision %d of %s is no version", rev, l.key)
		}
		if rev > e.mu.revision {
			fail("revision %d is above the current one, %d", rev, e.mu.revision)
		}
		if g, ok := c.garbage[rev]; ok != (l.kind != storage.Created) && rev >= e.mu.compacted {
			fail("revision %d, %v, has garbage: %v", rev, l.kind, ok)
		} else if ok && (g.key != l.key || g.previous != l.previous || (g.kind == storage.Deleted) != (l.kind == storage.Deleted)) {
			fail("revision %d has garbage %+v, is %+v", rev, g, l)
		}
	}
	if versions != len(c.log) {
		fail("%d versions, %d changes", versions, len(c.log))
	}
	return errors.Join(append(errs, c.verifyMemory(e))...)
}

// verifyKey checks that the versions of a key follow on one another.
func (c *contents) verifyKey(key string, revs map[uint64]bool, compacted, indexed uint64, fail func(string, ...any)) {
	all := slices.Sorted(maps.Keys(revs))
	var before uint64 // what the next change must have found
	for i, rev := range all {
		l, ok := c.log[rev]
		gone := revs[rev]
		switch {
		case !ok || l.key != key:
			fail("version %d of %s is not in the log: %+v", rev, key, l)
		case gone != (l.kind == storage.Deleted) || (l.previous == 0) != (l.kind == storage.Created):
			fail("version %d of %s, deletion %v, is %+v", rev, key, gone, l)
		case (i > 0 || rev >= compacted && l.previous >= compacted) && l.previous != before:
			fail("version %d of %s replaced %d, there was %d", rev, key, l.previous, before)
		}
		if before = rev; gone {
			before = 0
		}
	}
	if before != indexed {
		fail("%s is at %d, indexed at %d", key, before, indexed)
	}
}

func (c *contents) verifyMemory(e *Engine) error {
	var errs []error
	bytes := 0
	e.mu.index.tree.Scan(func(key string, rev uint64) bool {
		bytes += len(key)
		if _, ok := c.versions[key][rev]; !ok {
			errs = append(errs, fmt.Errorf("%s is indexed at %d, which is no version", key, rev))
		}
		return true
	})
	if bytes != e.mu.index.bytes {
		errs = append(errs, fmt.Errorf("%d bytes of keys, counted %d", bytes, e.mu.index.bytes))
	}
	e.expiry.mu.Lock()
	defer e.expiry.mu.Unlock()
	if len(c.expiry) != len(e.expiry.mu.byKey) || len(c.expiry) != e.expiry.mu.order.Len() {
		errs = append(errs, fmt.Errorf("%d times to live on disk, %d in memory", len(c.expiry), len(e.expiry.mu.byKey)))
	}
	for key, l := range e.expiry.mu.byKey {
		if c.expiry[key] != (pending{l.revision, l.at}) || e.mu.index.get(key) != l.revision {
			errs = append(errs, fmt.Errorf("time to live %+v, on disk %+v", l, c.expiry[key]))
		}
	}
	return errors.Join(errs...)
}

func mustVerify(t testing.TB, e *Engine) {
	t.Helper()
	if err := verify(e); err != nil {
		t.Fatal(err)
	}
}

// A record is what clients were told, and what they have asked for.
type record struct {
	mu        sync.Mutex
	acked     map[uint64]logged          // by revision
	requested map[string]map[string]bool // key, values; "" stands for a deletion
	last      uint64                     // highest revision acknowledged
}

func newRecord() *record {
	return &record{acked: map[uint64]logged{}, requested: map[string]map[string]bool{}}
}

// write notes a change before it is made, and returns the highest revision that it must follow.
func (r *record) write(key, value string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.requested[key] == nil {
		r.requested[key] = map[string]bool{}
	}
	r.requested[key][value] = true
	return r.last
}

func (r *record) ack(rev uint64, l logged, after uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other, ok := r.acked[rev]; ok {
		return fmt.Errorf("revision %d is %+v and %+v", rev, other, l)
	}
	if rev <= after {
		return fmt.Errorf("revision %d was acknowledged before the change at %d began", after, rev)
	}
	r.acked[rev] = l
	r.last = max(r.last, rev)
	return nil
}

// copy is what has been acknowledged until now.
func (r *record) copy() map[uint64]logged {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.acked)
}

// check compares what was acknowledged with what a store holds.
func (r *record) check(e *Engine, acked map[uint64]logged) error {
	c, err := readContents(e)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for rev, want := range acked {
		got, ok := c.log[rev]
		switch {
		case rev > e.mu.revision:
			errs = append(errs, fmt.Errorf("acknowledged %+v at %d, the store is at %d", want, rev, e.mu.revision))
		case !ok && rev >= e.mu.compacted:
			errs = append(errs, fmt.Errorf("acknowledged %+v at %d is not there", want, rev))
		case !ok && want.kind != storage.Deleted && len(newer(c.versions[want.key], rev)) == 0 && e.mu.index.get(want.key) == 0:
			// Compacted, so replaced or deleted by something: that is compacted too, if it was a deletion.
			if !r.requested[want.key][""] {
				errs = append(errs, fmt.Errorf("acknowledged %+v at %d is gone without a deletion", want, rev))
			}
		case ok && (got.key != want.key || got.value != want.value || (got.kind == storage.Deleted) != (want.kind == storage.Deleted)):
			errs = append(errs, fmt.Errorf("acknowledged %+v at %d, the store has %+v", want, rev, got))
		}
	}
	for rev, l := range c.log {
		if !r.requested[l.key][l.value] {
			errs = append(errs, fmt.Errorf("nobody asked for %+v at %d", l, rev))
		}
	}
	return errors.Join(errs...)
}

func newer(versions map[uint64]bool, rev uint64) []uint64 {
	var out []uint64
	for r := range versions {
		if r > rev {
			out = append(out, r)
		}
	}
	return out
}

// put and delete make a change on record.
func (r *record) put(e *Engine, key, value string, expect uint64) (uint64, error) {
	after := r.write(key, value)
	rev, err := e.Put(context.Background(), key, []byte(value), storage.Precondition{Revision: expect}, 0)
	if err != nil {
		return 0, err
	}
	return rev, r.ack(rev, logged{kind: storage.Updated, key: key, value: value}, after)
}

func (r *record) delete(e *Engine, key string, expect uint64) (uint64, error) {
	after := r.write(key, "")
	rev, err := e.Delete(context.Background(), key, storage.Precondition{Revision: expect})
	if err != nil {
		return 0, err
	}
	return rev, r.ack(rev, logged{kind: storage.Deleted, key: key}, after)
}
