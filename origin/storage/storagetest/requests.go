package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"hash/fnv"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// put writes a key of the case and expects it to succeed.
func (s *session) put(name, value string, expect uint64) uint64 {
	s.Helper()
	rev, err := s.engine.Put(s.ctx, s.key(name), []byte(value), storage.Precondition{Revision: expect}, 0)
	if err != nil {
		s.Fatalf("put %s at %d: %v", name, expect, err)
	}
	if rev == 0 || rev <= expect {
		s.Fatalf("put %s at %d: revision %d", name, expect, rev)
	}
	return rev
}

// write puts a value over what a key holds, nil if it does not exist, and returns the event.
func (s *session) write(name, value string, previous *storage.KeyValue) storage.Event {
	s.Helper()
	if previous == nil {
		return s.created(name, value, s.put(name, value, 0))
	}
	return s.updated(name, value, s.put(name, value, previous.Revision), previous)
}

func (s *session) delete(name string, expect uint64) uint64 {
	s.Helper()
	rev, err := s.engine.Delete(s.ctx, s.key(name), storage.Precondition{Revision: expect})
	if err != nil {
		s.Fatalf("delete %s at %d: %v", name, expect, err)
	}
	if rev <= expect {
		s.Fatalf("delete %s at %d: revision %d", name, expect, rev)
	}
	return rev
}

// get reads one key; nil means that it does not exist.
func (s *session) get(name string) *storage.KeyValue {
	s.Helper()
	kv, err := getFrom(s.ctx, s.engine, s.key(name))
	if err != nil {
		s.Fatalf("get %s: %v", name, err)
	}
	return kv
}

func getFrom(ctx context.Context, e storage.Engine, key string) (*storage.KeyValue, error) {
	res, err := e.Range(ctx, storage.RangeOptions{Prefix: key, Exact: true})
	if err != nil {
		return nil, err
	}
	switch {
	case len(res.KVs) == 0:
		return nil, nil
	case len(res.KVs) > 1 || res.KVs[0].Key != key:
		return nil, fmt.Errorf("exact range of %s returned %s", key, showKVs(res.KVs))
	}
	return &res.KVs[0], nil
}

// mustHold fails unless a key holds a value written at a revision.
func (s *session) mustHold(name, value string, rev uint64) {
	s.Helper()
	want := storage.KeyValue{Key: s.key(name), Value: []byte(value), Revision: rev}
	if got := s.get(name); got == nil || showKV(*got) != showKV(want) {
		s.Fatalf("%s holds %s, want %s", name, showPointer(got), showKV(want))
	}
}

func (s *session) mustNotExist(name string) {
	s.Helper()
	if got := s.get(name); got != nil {
		s.Fatalf("%s holds %s, want nothing", name, showKV(*got))
	}
}

func (s *session) scan(opts storage.RangeOptions) storage.RangeResult {
	s.Helper()
	res, err := s.engine.Range(s.ctx, opts)
	if err != nil {
		s.Fatalf("range %+v: %v", opts, err)
	}
	return res
}

func (s *session) current() uint64 {
	s.Helper()
	rev, err := s.engine.CurrentRevision(s.ctx)
	if err != nil {
		s.Fatalf("current revision: %v", err)
	}
	if rev == 0 {
		s.Fatal("the current revision is 0")
	}
	return rev
}

func (s *session) compact(rev uint64) {
	s.Helper()
	if err := s.engine.Compact(s.ctx, rev); err != nil {
		s.Fatalf("compact %d: %v", rev, err)
	}
}

// wantConflict fails unless err is a ConflictError that says what the key holds.
func (s *session) wantConflict(err error, name string, current *storage.KeyValue) {
	s.Helper()
	var conflict *storage.ConflictError
	if !errors.As(err, &conflict) {
		s.Fatalf("error %v, want a ConflictError", err)
	}
	if conflict.Key != s.key(name) {
		s.Errorf("the conflict is about %s, want %s", conflict.Key, s.key(name))
	}
	if showPointer(conflict.Current) != showPointer(current) {
		s.Errorf("the conflict holds %s, want %s", showPointer(conflict.Current), showPointer(current))
	}
}

// watch opens a watch that ends with the case.
func (s *session) watch(prefix string, after uint64) storage.Watcher {
	s.Helper()
	return s.watchOn(s.engine, prefix, after)
}

func (s *session) watchOn(e storage.Engine, prefix string, after uint64) storage.Watcher {
	s.Helper()
	w, err := e.Watch(s.ctx, storage.WatchOptions{Prefix: prefix, After: after})
	if err != nil {
		s.Fatalf("watch %s after %d: %v", prefix, after, err)
	}
	s.Cleanup(w.Close)
	return w
}

func (s *session) next(w storage.Watcher) storage.Batch {
	s.Helper()
	b, err := w.Next(s.ctx)
	if err != nil {
		s.Fatalf("next: %v", err)
	}
	return b
}

// until reads a watch up to and including the event at a revision, and returns its events.
func (s *session) until(w storage.Watcher, rev uint64) []storage.Event {
	s.Helper()
	var events []storage.Event
	for {
		b := s.next(w)
		for _, ev := range b.Events {
			events = append(events, cloneEvent(ev))
		}
		if b.Revision >= rev && len(events) > 0 && events[len(events)-1].KV.Revision >= rev {
			return events
		}
	}
}

// wantEvents reads a watch up to the last event wanted and compares. A fence
// behind what is wanted makes it "these and no other".
func (s *session) wantEvents(w storage.Watcher, want ...storage.Event) {
	s.Helper()
	got := s.until(w, want[len(want)-1].KV.Revision)
	s.sameEvents(got, want)
}

func (s *session) sameEvents(got, want []storage.Event) {
	s.Helper()
	g, w := showEvents(got), showEvents(want)
	if !slices.Equal(g, w) {
		s.Fatalf("events:\n  %s\nwant:\n  %s", strings.Join(g, "\n  "), strings.Join(w, "\n  "))
	}
}

func (s *session) kv(name, value string, rev uint64) *storage.KeyValue {
	return &storage.KeyValue{Key: s.key(name), Value: []byte(value), Revision: rev}
}

func (s *session) created(name, value string, rev uint64) storage.Event {
	return storage.Event{Type: storage.Created, KV: *s.kv(name, value, rev)}
}

func (s *session) updated(name, value string, rev uint64, previous *storage.KeyValue) storage.Event {
	return storage.Event{Type: storage.Updated, KV: *s.kv(name, value, rev), Previous: previous}
}

func (s *session) deleted(name string, rev uint64, previous *storage.KeyValue) storage.Event {
	return storage.Event{Type: storage.Deleted, KV: storage.KeyValue{Key: s.key(name), Revision: rev}, Previous: previous}
}

func cloneEvent(ev storage.Event) storage.Event {
	ev.KV.Value = bytes.Clone(ev.KV.Value)
	if ev.Previous != nil {
		p := *ev.Previous
		p.Value = bytes.Clone(p.Value)
		ev.Previous = &p
	}
	return ev
}

func showEvents(events []storage.Event) []string {
	out := make([]string, len(events))
	for i, ev := range events {
		kind := map[storage.EventType]string{storage.Created: "created", storage.Updated: "updated", storage.Deleted: "deleted"}[ev.Type]
		if ev.Type == storage.Deleted && ev.KV.Value != nil {
			kind += " (with a value)"
		}
		out[i] = kind + " " + showKV(ev.KV) + " was " + showPointer(ev.Previous)
	}
	return out
}

func showPointer(kv *storage.KeyValue) string {
	if kv == nil {
		return "nothing"
	}
	return showKV(*kv)
}

func showKVs(kvs []storage.KeyValue) string {
	out := make([]string, len(kvs))
	for i, kv := range kvs {
		out[i] = showKV(kv)
	}
	return "[" + strings.Join(out, " ") + "]"
}

// showKV leaves long values to their length and a digest.
func showKV(kv storage.KeyValue) string {
	const longest = 64
	if len(kv.Value) > longest {
		return fmt.Sprintf("%s@%d=%q… (%d bytes, sum %x)", kv.Key, kv.Revision, kv.Value[:longest], len(kv.Value), digest(kv.Value))
	}
	return fmt.Sprintf("%s@%d=%q", kv.Key, kv.Revision, kv.Value)
}

func names(kvs []storage.KeyValue, prefix string) []string {
	out := make([]string, len(kvs))
	for i, kv := range kvs {
		out[i] = strings.TrimPrefix(kv.Key, prefix)
	}
	return out
}

func digest(b []byte) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(b)
	return h.Sum32()
}
