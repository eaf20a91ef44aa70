package registry

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	engine "github.com/kubeweir/kubeweir/origin/storage"
)

// maxPage is the most keys that are read at once when a selector leaves so few of them
// that a page of the answer takes several reads (as apiserver, storage/etcd3).
const maxPage = 10000

// maxGuess is for how many items room is made ahead when a selector will leave some out.
const maxGuess = 2048

// GetList implements storage.Interface.
func (s *Store) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	key, err := s.key(key, opts.Recursive)
	if err != nil {
		return err
	}
	l, err := s.newListing(key, opts, list)
	if err != nil {
		return err
	}
	if err := l.fill(ctx); err != nil {
		return err
	}
	return l.finish(list)
}

// listing is a list while it is being made.
type listing struct {
	*Store
	opts  storage.ListOptions
	key   string        // a prefix if opts.Recursive
	items reflect.Value // the list's slice
	// newItem makes what an item is decoded into; nil: the slice's element itself.
	newItem func() runtime.Object

	from     string // first key to read
	revision uint64 // to read at, 0 until the first answer if that is to be the newest
	last     string // key that was looked at last
	more     bool
	count    int64 // keys from the first page's first on; only if all match
}

func (s *Store) newListing(key string, opts storage.ListOptions, list runtime.Object) (*listing, error) {
	ptr, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil, err
	}
	items, err := conversion.EnforcePtr(ptr)
	if err != nil || items.Kind() != reflect.Slice {
		return nil, fmt.Errorf("need ptr to slice: %v", err)
	}
	revision, from, err := storage.ValidateListOptions(key, s.versioner, opts)
	if err != nil {
		return nil, err
	}
	l := &listing{Store: s, opts: opts, key: key, items: items, from: from, revision: uint64(revision)}
	// Unstructured items are told their version, so that they are converted into it.
	if u, ok := list.(*unstructured.UnstructuredList); ok && u.GetAPIVersion() != "" {
		apiVersion := u.GetAPIVersion()
		l.newItem = func() runtime.Object {
			return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion}}
		}
	}
	return l, nil
}

func (l *listing) limited() bool { return l.opts.Predicate.Limit > 0 }

func (l *listing) full() bool {
	return l.limited() && int64(l.items.Len()) >= l.opts.Predicate.Limit
}

// fill reads until the limit is reached or nothing is left.
func (l *listing) fill(ctx context.Context) error {
	for page := l.opts.Predicate.Limit; ; page = min(page*2, max(page, maxPage)) {
		if err := l.read(ctx, page); err != nil {
			return err
		}
		if !l.more || !l.limited() || l.full() {
			return nil
		}
		l.from = l.last + "\x00"
	}
}

// read adds what matches of the next keys, at most page of them; 0: of all.
func (l *listing) read(ctx context.Context, page int64) error {
	read := engine.RangeOptions{
		Prefix:   l.key,
		Exact:    !l.opts.Recursive,
		From:     l.from,
		Revision: l.revision,
	}
	if l.opts.Recursive {
		read.Limit = page
		read.Count = l.limited() && l.opts.Predicate.Empty()
	}
	result, err := l.engine.Range(ctx, read)
	if err != nil {
		return listError(err, l.opts.Predicate.Continue != "", l.from, l.key, l.revision)
	}
	if err := l.notOlderThan(l.opts.ResourceVersion, result.Revision); err != nil {
		return err
	}
	if l.revision == 0 {
		// The pages that follow show the same moment.
		l.revision = result.Revision
	}
	l.more, l.count = result.More, result.Count
	if len(result.KVs) == 0 && l.more {
		return fmt.Errorf("no keys from %q on, though there were to be more", l.from)
	}
	l.grow(len(result.KVs))
	start := time.Now()
	defer func() { request.TrackDecodeLatency(ctx, time.Since(start)) }()
	for i := range result.KVs {
		if l.full() {
			l.more = true
			break
		}
		if err := l.add(ctx, &result.KVs[i]); err != nil {
			return err
		}
		l.last = result.KVs[i].Key
		// A long list takes seconds: what is decoded need not be kept until its end.
		result.KVs[i] = engine.KeyValue{}
	}
	return nil
}

func (l *listing) grow(n int) {
	if !l.opts.Predicate.Empty() {
		n = min(n, max(maxGuess-l.items.Cap(), 0))
	}
	if free := l.items.Cap() - l.items.Len(); n > free {
		l.items.Grow(n - free)
	}
}

// add appends one object if it matches. It is decoded where it is to stay, objects
// being large.
func (l *listing) add(ctx context.Context, kv *engine.KeyValue) error {
	data, _, err := l.transformer.TransformFromStorage(ctx, kv.Value, dataContext(kv.Key))
	if err != nil {
		return storage.NewInternalError(fmt.Errorf("unable to transform key %q: %w", kv.Key, err))
	}
	if ctx.Err() != nil {
		return storage.NewTimeoutError(kv.Key, "request did not complete within requested timeout")
	}
	n := l.items.Len()
	if n == l.items.Cap() {
		l.items.Grow(1)
	}
	l.items.SetLen(n + 1)
	slot := l.items.Index(n)
	slot.SetZero()
	matched, err := l.decodeItem(data, kv, slot)
	if err != nil || !matched {
		l.items.SetLen(n)
	}
	return err
}

func (l *listing) decodeItem(data []byte, kv *engine.KeyValue, slot reflect.Value) (bool, error) {
	item := slot.Addr().Interface().(runtime.Object)
	into := item
	if l.newItem != nil {
		into = l.newItem()
	}
	obj, _, err := l.codec.Decode(data, nil, into)
	if err != nil {
		return false, fmt.Errorf("unable to decode key %q: %w", kv.Key, err)
	}
	_ = l.versioner.UpdateObject(obj, kv.Revision)
	matched, err := l.opts.Predicate.Matches(obj)
	if err != nil || !matched {
		// What has no attributes matches nothing, as kube-apiserver has it.
		return false, nil
	}
	if obj != item {
		slot.Set(reflect.ValueOf(obj).Elem())
	}
	return true, nil
}

// finish gives the list its metadata.
func (l *listing) finish(list runtime.Object) error {
	if l.items.IsNil() {
		// An empty list is [], never null.
		l.items.Set(reflect.MakeSlice(l.items.Type(), 0, 0))
	}
	next, remaining, err := storage.PrepareContinueToken(l.last, l.key, int64(l.revision), l.count, l.more, l.opts)
	if err != nil {
		return err
	}
	if err := l.versioner.UpdateList(list, l.revision, next, remaining); err != nil {
		return err
	}
	l.opts.Predicate.SetShardInfoOnList(list)
	return nil
}
