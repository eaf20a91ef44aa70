package server

import (
	"context"
	"sort"
	"strings"
	"sync"
	"time"

	engine "github.com/kubeweir/kubeweir/origin/storage"
)

type memEngine struct {
	mu        sync.Mutex
	rev       uint64
	compacted uint64
	history   []engine.Event
	now       map[string]engine.KeyValue
	changed   chan struct{}
}

func newMem() *memEngine {
	return &memEngine{rev: 1, now: map[string]engine.KeyValue{}, changed: make(chan struct{})}
}

func (m *memEngine) change(key string, value []byte, del bool, expect engine.Precondition) (uint64, error) {
	old, ok := m.now[key]
	if ok != (expect.Revision != 0) || ok && old.Revision != expect.Revision {
		c := &engine.ConflictError{Key: key}
		if ok {
			c.Current = &old
		}
		return 0, c
	}
	m.rev++
	ev := engine.Event{Type: engine.Created, KV: engine.KeyValue{Key: key, Value: value, Revision: m.rev}}
	if ok {
		ev.Type, ev.Previous = engine.Updated, &old
	}
	if del {
		ev.Type = engine.Deleted
		delete(m.now, key)
	} else {
		m.now[key] = ev.KV
	}
	m.history = append(m.history, ev)
	close(m.changed)
	m.changed = make(chan struct{})
	return m.rev, nil
}

func (m *memEngine) Put(ctx context.Context, key string, value []byte, expect engine.Precondition, ttl time.Duration) (uint64, error) {
	if len(value) > 3<<19 {
		return 0, engine.ErrTooLarge
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	rev, err := m.change(key, value, false, expect)
	if err == nil && ttl > 0 {
		time.AfterFunc(ttl, func() { _, _ = m.Delete(ctx, key, engine.Precondition{Revision: rev}) })
	}
	return rev, err
}

func (m *memEngine) Delete(ctx context.Context, key string, expect engine.Precondition) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.change(key, nil, true, expect)
}

func (m *memEngine) Range(ctx context.Context, o engine.RangeOptions) (engine.RangeResult, error) {
	if err := ctx.Err(); err != nil {
		return engine.RangeResult{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.Revision > m.rev {
		return engine.RangeResult{}, &engine.FutureError{Current: m.rev}
	}
	rev := m.rev
	view := m.now
	if o.Revision != 0 {
		if o.Revision < m.compacted {
			return engine.RangeResult{}, engine.ErrCompacted
		}
		rev, view = o.Revision, map[string]engine.KeyValue{}
		for _, e := range m.history {
			if e.KV.Revision > rev {
				break
			}
			if e.Type == engine.Deleted {
				delete(view, e.KV.Key)
			} else {
				view[e.KV.Key] = e.KV
			}
		}
	}
	res := engine.RangeResult{Revision: rev}
	for k, kv := range view {
		if strings.HasPrefix(k, o.Prefix) && (!o.Exact || k == o.Prefix) && k >= o.From {
			res.KVs = append(res.KVs, kv)
		}
	}
	sort.Slice(res.KVs, func(i, j int) bool { return res.KVs[i].Key < res.KVs[j].Key })
	if o.Count {
		res.Count = int64(len(res.KVs))
	}
	if o.Limit > 0 && int64(len(res.KVs)) > o.Limit {
		res.KVs, res.More = res.KVs[:o.Limit], true
	}
	return res, nil
}

func (m *memEngine) CurrentRevision(context.Context) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rev, nil
}

func (m *memEngine) Compact(_ context.Context, r uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.compacted = max(m.compacted, r)
	return nil
}
func (m *memEngine) Close() error { return nil }

type memWatcher struct {
	m       *memEngine
	prefix  string
	after   uint64
	ask     chan struct{}
	closing chan struct{}
	once    sync.Once
}

func (m *memEngine) Watch(_ context.Context, o engine.WatchOptions) (engine.Watcher, error) {
	return &memWatcher{m: m, prefix: o.Prefix, after: o.After, ask: make(chan struct{}, 1), closing: make(chan struct{})}, nil
}

func (w *memWatcher) RequestProgress() {
	select {
	case w.ask <- struct{}{}:
	default:
	}
}
func (w *memWatcher) Close() { w.once.Do(func() { close(w.closing) }) }

func (w *memWatcher) Next(ctx context.Context) (engine.Batch, error) {
	asked := false
	for {
		w.m.mu.Lock()
		if w.after < w.m.compacted {
			w.m.mu.Unlock()
			return engine.Batch{}, engine.ErrCompacted
		}
		b := engine.Batch{Revision: max(w.m.rev, w.after)}
		for _, e := range w.m.history {
			if e.KV.Revision > w.after && strings.HasPrefix(e.KV.Key, w.prefix) {
				b.Events = append(b.Events, e)
			}
		}
		changed := w.m.changed
		w.m.mu.Unlock()
		w.after = b.Revision
		if len(b.Events) > 0 || asked {
			return b, nil
		}
		select {
		case <-changed:
		case <-w.ask:
			asked = true
		case <-w.closing:
			return engine.Batch{}, engine.ErrClosed
		case <-ctx.Done():
			return engine.Batch{}, ctx.Err()
		}
	}
}
