package storagetest

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// These tests give every checker a violation that it must detect.

func kvAt(key, value string, rev uint64) storage.KeyValue {
	kv := storage.KeyValue{Key: "/p/" + key, Revision: rev}
	if value != "" {
		kv.Value = []byte(value)
	}
	return kv
}

// past is a history: a is created at 2, b at 3, a changed at 5, both deleted at 7.
func past() *history {
	h := newHistory("/p/")
	for _, kv := range []storage.KeyValue{kvAt("a", "1", 2), kvAt("b", "1", 3), kvAt("a", "2", 5), kvAt("a", "", 7), kvAt("b", "", 7)} {
		h.add(kv)
	}
	return h
}

func TestWatchGuaranteesBite(t *testing.T) {
	all := past().events("/p/", 0, 7)
	batch := func(rev uint64, events ...storage.Event) storage.Batch {
		return storage.Batch{Revision: rev, Events: events}
	}
	wrong := all[2]
	wrong.Previous = nil
	for name, tc := range map[string]struct {
		batches []storage.Batch
		after   uint64
		want    string // "" for none
	}{
		"all at once":         {batches: []storage.Batch{batch(7, all...)}},
		"one by one":          {batches: []storage.Batch{batch(2, all[0]), batch(2), batch(4, all[1]), batch(6, all[2]), batch(9, all[3:]...)}},
		"from the middle":     {after: 3, batches: []storage.Batch{batch(3), batch(5, all[2])}},
		"from the future":     {after: 6, batches: []storage.Batch{batch(5), batch(7, all[3:]...)}},
		"gap":                 {batches: []storage.Batch{batch(2, all[0]), batch(5, all[2])}, want: "reliable"},
		"nothing delivered":   {batches: []storage.Batch{batch(2)}, want: "reliable"},
		"one of two":          {batches: []storage.Batch{batch(7, all[:4]...)}, want: "reliable"},
		"no previous":         {batches: []storage.Batch{batch(5, all[0], all[1], wrong)}, want: "reliable"},
		"twice":               {batches: []storage.Batch{batch(2, all[0]), batch(3, all[0], all[1])}, want: "unique"},
		"order":               {batches: []storage.Batch{batch(3, all[1], all[0])}, want: "ordered"},
		"from before":         {after: 2, batches: []storage.Batch{batch(3, all[0], all[1])}, want: "ordered"},
		"torn":                {batches: []storage.Batch{batch(6, all[:3]...), batch(7, all[3]), batch(7, all[4])}, want: "atomic"},
		"event after promise": {batches: []storage.Batch{batch(3, all[0]), batch(3, all[1])}, want: "bookmarkable"},
		"beyond its revision": {batches: []storage.Batch{batch(2, all[0], all[1])}, want: "bookmarkable"},
		"back":                {batches: []storage.Batch{batch(3, all[0], all[1]), batch(2)}, want: "bookmarkable"},
	} {
		t.Run(name, func(t *testing.T) {
			l := watchLog{prefix: "/p/", after: tc.after, batches: tc.batches}
			err := errors.Join(l.check(past())...)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), "not "+tc.want) {
				t.Errorf("found %v, want %q", err, tc.want)
			}
		})
	}
}

func TestVerificationBites(t *testing.T) {
	put := func(call, ret int64, expect uint64, value string, rev uint64) op {
		return op{kind: opPut, key: "/p/a", call: call, ret: ret, expect: expect, value: value, rev: rev}
	}
	get := func(call, ret int64, value string, rev, now uint64) op {
		kv := kvAt("a", value, rev)
		return op{kind: opGet, key: "/p/a", call: call, ret: ret, current: &kv, rev: now}
	}
	conflict := func(call, ret int64, expect uint64, value string, rev uint64) op {
		kv := kvAt("a", value, rev)
		return op{kind: opPut, key: "/p/a", call: call, ret: ret, expect: expect, value: "lost", conflict: true, current: &kv}
	}
	unknown := func(call int64, expect uint64, value string) op {
		return op{kind: opPut, key: "/p/a", call: call, ret: math.MaxInt64, expect: expect, value: value, unknown: true}
	}
	current := func(call, ret int64, rev uint64) op {
		return op{kind: opCurrent, call: call, ret: ret, rev: rev}
	}
	for name, tc := range map[string]struct {
		ops    []op
		events []storage.KeyValue
		want   string
	}{
		"fine": {
			ops:    []op{put(0, 1, 0, "1", 2), get(2, 3, "1", 2, 2), conflict(2, 3, 0, "1", 2), put(4, 5, 2, "2", 5), current(6, 7, 5)},
			events: []storage.KeyValue{kvAt("a", "1", 2), kvAt("a", "2", 5)},
		},
		"unknown that happened": {ops: []op{unknown(0, 0, "1"), get(5, 6, "1", 2, 2)}, events: []storage.KeyValue{kvAt("a", "1", 2)}},
		"unknown that did not":  {ops: []op{unknown(0, 0, "1"), put(5, 6, 0, "2", 2)}, events: []storage.KeyValue{kvAt("a", "2", 2)}},
		"lost":                  {ops: []op{put(0, 1, 0, "1", 2)}, want: "lost"},
		"from nowhere":          {events: []storage.KeyValue{kvAt("a", "1", 2)}, want: "nobody made"},
		"another value":         {ops: []op{put(0, 1, 0, "1", 2)}, events: []storage.KeyValue{kvAt("a", "x", 2)}, want: "changed"},
		"two acknowledged":      {ops: []op{put(0, 1, 0, "1", 2), put(0, 1, 0, "1", 2)}, events: []storage.KeyValue{kvAt("a", "1", 2)}, want: "one change for two"},
		"stale read": {
			ops:    []op{put(0, 1, 0, "1", 2), put(2, 3, 2, "2", 3), get(4, 5, "1", 2, 3)},
			events: []storage.KeyValue{kvAt("a", "1", 2), kvAt("a", "2", 3)}, want: "not linearizable",
		},
		"stale conflict": {
			ops:    []op{put(0, 1, 0, "1", 2), put(2, 3, 2, "2", 3), conflict(4, 5, 0, "1", 2)},
			events: []storage.KeyValue{kvAt("a", "1", 2), kvAt("a", "2", 3)}, want: "not linearizable",
		},
		"conflict without a reason": {
			ops:    []op{put(0, 1, 0, "1", 2), conflict(4, 5, 2, "1", 2)},
			events: []storage.KeyValue{kvAt("a", "1", 2)}, want: "not linearizable",
		},
		"stale revision": {
			ops:    []op{put(0, 1, 0, "1", 2), current(2, 3, 1)},
			events: []storage.KeyValue{kvAt("a", "1", 2)}, want: "order",
		},
		"revision from the future": {
			ops:    []op{current(0, 1, 9), put(2, 3, 0, "1", 2)},
			events: []storage.KeyValue{kvAt("a", "1", 2)}, want: "order",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory("/p/")
			for _, kv := range tc.events {
				h.add(kv)
			}
			err := errors.Join(verifyOps(tc.ops, h)...)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("found %v, want %q", err, tc.want)
			}
		})
	}
}
