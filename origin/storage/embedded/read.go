package embedded

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// Range implements storage.Engine. It finds current keys in the index and those of old
// revisions in the key space, and reads values from the log.
func (e *Engine) Range(ctx context.Context, opts storage.RangeOptions) (storage.RangeResult, error) {
	for {
		res, err := e.rangeOnce(ctx, opts)
		// The revision that was current was compacted meanwhile: there is a newer one.
		if opts.Revision == 0 && errors.Is(err, storage.ErrCompacted) {
			continue
		}
		return res, err
	}
}

func (e *Engine) rangeOnce(ctx context.Context, opts storage.RangeOptions) (storage.RangeResult, error) {
	found, err := e.find(ctx, opts)
	if err != nil {
		return storage.RangeResult{}, err
	}
	res := storage.RangeResult{Revision: found.revision, More: found.more, Count: found.count, KVs: found.kvs}
	if opts.KeysOnly {
		return res, nil
	}
	if len(res.KVs) < fewValues {
		for i := range res.KVs {
			kv, err := e.at(res.KVs[i].Key, res.KVs[i].Revision)
			if err != nil {
				return storage.RangeResult{}, err
			}
			res.KVs[i] = *kv
		}
		return res, nil
	}
	return res, e.fill(ctx, res.KVs)
}

// fewValues is the number of values from which on an iterator is faster than single reads.
const fewValues = 8

// fill reads the values of keys at their revisions, in the order of the log.
func (e *Engine) fill(ctx context.Context, kvs []storage.KeyValue) error {
	release, err := e.use()
	if err != nil {
		return err
	}
	defer release()
	order := make([]int, len(kvs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(kvs[a].Revision, kvs[b].Revision) })
	return e.readError(e.scan([]byte{spaceLog}, []byte{spaceLog + 1}, func(iter *pebble.Iterator) error {
		var at []byte
		last := uint64(0)
		for n, i := range order {
			if n&0xff == 0xff && ctx.Err() != nil {
				return ctx.Err()
			}
			kv := &kvs[i]
			at = binary.BigEndian.AppendUint64(append(at[:0], spaceLog), kv.Revision)
			var ok bool
			if n > 0 && kv.Revision == last+1 {
				ok = iter.Next() // objects that were created together are neighbors in the log
			} else {
				ok = iter.SeekGE(at)
			}
			if last = kv.Revision; !ok || !bytes.Equal(iter.Key(), at) {
				return cmp.Or(iter.Error(), e.missing(kv.Key, kv.Revision))
			}
			v, err := iter.ValueAndErr()
			if err != nil {
				return err
			}
			if kv.Value, err = parseValue(v, kv.Key, kv.Revision); err != nil {
				return err
			}
		}
		return nil
	}))
}

// missing returns why the value of a key that was found is not in the log: it was replaced
// since, and its revision compacted.
func (e *Engine) missing(key string, rev uint64) error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if rev < e.mu.compacted && e.mu.index.get(key) != rev {
		return storage.ErrCompacted
	}
	return corrupt("a change is missing", logKey(rev))
}

// parseValue returns a copy of the value of a change that wrote key.
func parseValue(v []byte, key string, rev uint64) ([]byte, error) {
	ent, err := parseEntry(v)
	if err == nil && (string(ent.key) != key || ent.kind == storage.Deleted) {
		err = corrupt("another change", logKey(rev))
	}
	if err != nil {
		return nil, fmt.Errorf("revision %d: %w", rev, err)
	}
	return append([]byte{}, ent.value...), nil
}

// found is the result of a range without the values.
type found struct {
	kvs      []storage.KeyValue
	revision uint64
	more     bool
	count    int64
}

// take adds a key. It returns false if the limit is reached.
func (f *found) take(opts *storage.RangeOptions, key string, rev uint64) bool {
	if opts.Limit > 0 && int64(len(f.kvs)) >= opts.Limit {
		f.more = true
		return false
	}
	f.kvs = append(f.kvs, storage.KeyValue{Key: key, Revision: rev})
	return true
}

func (e *Engine) find(ctx context.Context, opts storage.RangeOptions) (found, error) {
	if err := e.closed(ctx); err != nil {
		return found{}, err
	}
	if opts.Exact && opts.Revision == 0 {
		return e.findKey(opts), nil
	}
	// A lock, because it marks the nodes of the index as shared.
	e.mu.Lock()
	now, compacted := e.mu.revision, e.mu.compacted
	var x index
	if current := opts.Revision == 0 || opts.Revision == now; current && !opts.Exact {
		x = e.mu.index.copy()
	}
	e.mu.Unlock()
	switch {
	case opts.Revision > now:
		return found{}, &storage.FutureError{Current: now}
	case opts.Revision != 0 && opts.Revision < compacted:
		return found{}, storage.ErrCompacted
	case x.tree != nil:
		f := found{revision: now}
		f.current(&opts, &x)
		return f, nil
	}
	return e.findOld(ctx, opts)
}

// findKey finds one key as it is now.
func (e *Engine) findKey(opts storage.RangeOptions) found {
	e.mu.RLock()
	defer e.mu.RUnlock()
	f := found{revision: e.mu.revision}
	if rev := e.mu.index.get(opts.Prefix); rev != 0 && opts.From <= opts.Prefix {
		f.take(&opts, opts.Prefix, rev)
		f.setCount(&opts, 1)
	}
	return f
}

func (f *found) setCount(opts *storage.RangeOptions, n int64) {
	if opts.Count {
		f.count = n
	}
}

func (f *found) current(opts *storage.RangeOptions, x *index) {
	x.tree.Ascend(max(opts.Prefix, opts.From), func(key string, rev uint64) bool {
		return strings.HasPrefix(key, opts.Prefix) && f.take(opts, key, rev)
	})
	if opts.Count {
		f.count = int64(x.count(opts.Prefix, opts.From))
	}
}

// findOld finds keys as they were at a revision.
func (e *Engine) findOld(ctx context.Context, opts storage.RangeOptions) (found, error) {
	release, err := e.use()
	if err != nil {
		return found{}, err
	}
	defer release()
	f := found{revision: opts.Revision}
	lower, upper := keyBounds(opts.Prefix, opts.From)
	if opts.Exact {
		if opts.From > opts.Prefix {
			return f, nil
		}
		lower = appendVersionKey(nil, opts.Prefix, opts.Revision)
		upper = append(appendEscaped([]byte{spaceKeys}, opts.Prefix), escape, behind)
	}
	err = e.scan(lower, upper, func(iter *pebble.Iterator) error {
		return f.versions(ctx, &opts, iter)
	})
	// Versions go only after compacted has risen.
	e.mu.RLock()
	defer e.mu.RUnlock()
	if opts.Revision < e.mu.compacted {
		return found{}, storage.ErrCompacted
	}
	return f, e.readError(err)
}

// versions takes the newest version of each key that is not newer than the revision.
func (f *found) versions(ctx context.Context, opts *storage.RangeOptions, iter *pebble.Iterator) error {
	var seek []byte
	count, steps := int64(0), 0
	for ok := iter.First(); ok; {
		if steps++; steps&0xff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		escaped, rev, err := splitVersionKey(iter.Key())
		if err != nil {
			return err
		}
		if rev > opts.Revision {
			// This key's newest that is old enough, or the next key's newest.
			seek = appendVersionKey(seek[:0], unescape(escaped), opts.Revision)
			ok = iter.SeekGE(seek)
			continue
		}
		gone, err := iter.ValueAndErr()
		if err != nil {
			return err
		}
		if len(gone) == 0 {
			more := f.take(opts, unescape(escaped), rev)
			if !more && !opts.Count {
				return nil
			}
			count++
		}
		seek = append(append(append(seek[:0], spaceKeys), escaped...), escape, behind)
		ok = iter.SeekGE(seek)
	}
	f.setCount(opts, count)
	return nil
}

// at reads the value that key got at a revision. ErrCompacted means that it was replaced
// since and its revision compacted.
func (e *Engine) at(key string, rev uint64) (*storage.KeyValue, error) {
	release, err := e.use()
	if err != nil {
		return nil, err
	}
	defer release()
	v, closer, err := e.db.Get(logKey(rev))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, e.readError(e.missing(key, rev))
	}
	if err != nil {
		return nil, e.readError(err)
	}
	value, err := parseValue(v, key, rev)
	if err := errors.Join(err, closer.Close()); err != nil {
		return nil, e.readError(err)
	}
	return &storage.KeyValue{Key: key, Value: value, Revision: rev}, nil
}
