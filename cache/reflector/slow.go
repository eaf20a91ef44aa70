package reflector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// A list over a slow link takes longer than kube-apiserver allows: it ends a response after a
// minute, forgets the version of a list after five, and ends a streaming list, which is not
// compressed, when too many changes queue up behind it. Each of these would restart the list,
// forever.
//
// If lists are compressed, the reflector therefore begins with one page. If that was slow, or there
// is no streaming list, it continues in pages that take a few seconds each, and repeats pages that
// break. If the list takes long, a watch from the version of the first page runs beside it. Later
// pages may then have later versions, as they do after the first version has expired: the last
// event of an object decides what it is or, without an event, its page. Once the watch has reached
// the version of the last page, the merged objects are the state at the version of the watch.
const (
	// pageTime is how long a page should take. It has at least minPageSize objects, the first page
	// firstPageSize.
	pageTime      = 5 * time.Second
	minPageSize   = 10
	firstPageSize = 100
	// quickPage is the maximum time of the first page on a fast link.
	quickPage = 100 * time.Millisecond
	// maxBrokenPages is how many pages in a row may break.
	maxBrokenPages = 10
	// mergeAfter is when a list is considered long. mergeLimit is how long its watch may take to
	// reach the version of the last page; bookmarks come once a minute.
	mergeAfter = 10 * time.Second
	mergeLimit = 3 * time.Minute
)

// errQuick means that the first page came fast and there are more, which a streaming list brings at
// a lower cost.
var errQuick = errors.New("the link is fast")

// errMerged ends the watch of a complete list.
var errMerged = errors.New("the list is complete")

// merging is a paged list, merged with a watch.
type merging struct {
	f        *Reflector
	l        *listing
	streams  bool   // the source supports streaming lists
	begun    bool   // the watch has begun; only for the goroutine of Run
	first    uint64 // the version of the first page, once the watch has begun
	watching sync.WaitGroup
	fail     context.CancelCauseFunc // ends the list because the watch cannot continue

	mu      sync.Mutex
	changed map[string]uint64 // guarded by mu: the version of the last event by key
	seen    uint64            // guarded by mu: the version of the watch
	over    bool              // guarded by mu: later events are ignored
	news    chan struct{}     // has capacity 1; signals that seen has changed
}

// listCompressed lists in pages and returns the version. If streams is set, the error may be
// errQuick.
func (f *Reflector) listCompressed(ctx context.Context, l *listing, streams bool) (rv uint64, err error) {
	m := &merging{f: f, l: l, streams: streams, changed: make(map[string]uint64), news: make(chan struct{}, 1)}
	defer m.watching.Wait()
	listCtx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	m.fail = fail
	rv, err = m.pages(listCtx)
	if err == nil && m.begun {
		rv, err = m.reach(listCtx, rv)
	}
	if err != nil {
		return 0, f.wrapListError(ctx, err)
	}
	return rv, nil
}

// pages reads the pages and returns the highest of their versions. The watch beside them ends with
// ctx.
func (m *merging) pages(ctx context.Context) (newest uint64, err error) {
	f, broken, began, first := m.f, 0, time.Now(), uint64(0)
	opts := source.ListOptions{Limit: firstPageSize}
	for {
		start := time.Now()
		meta, err := f.Source.List(ctx, f.Resource, f.Encoding, opts, m.page)
		rest := restOf(err)
		switch {
		case err == nil && meta.ResourceVersion == 0:
			return 0, source.ErrNoVersion
		case err == nil && meta.Continue == "":
			return max(newest, meta.ResourceVersion), nil
		case err == nil && m.streams && first == 0 && time.Since(start) <= quickPage:
			return 0, errQuick
		case err == nil:
			broken, newest = 0, max(newest, meta.ResourceVersion)
			if first == 0 {
				first = meta.ResourceVersion
			}
			opts = source.ListOptions{Limit: f.nextPage(opts.Limit, time.Since(start)), Continue: meta.Continue}
		case source.IsExpired(err) && rest != "" && first != 0:
			opts.Continue = rest
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case source.IsStatus(err), errors.Is(err, ErrDecode), broken == maxBrokenPages:
			return 0, err
		default:
			broken++
			opts.Limit = max(minPageSize, opts.Limit/4)
			f.Outage.suspect()
			if !f.pause(ctx, "page", err, f.backoff.next(err, false)) {
				return 0, context.Cause(ctx)
			}
		}
		if first != 0 && !m.begun && (rest != "" || time.Since(began) >= mergeAfter) {
			f.Log.Debug("slow list, watching in parallel")
			m.begun, m.first, m.seen = true, first, first
			f.Panics.Go(&m.watching, "feed", func() { m.watch(ctx) })
		}
	}
}

// nextPage returns the size of the page after one of limit objects that took so long.
func (f *Reflector) nextPage(limit int64, took time.Duration) int64 {
	next := 2 * limit
	if took > pageTime/2 {
		next = int64(float64(limit) * pageTime.Seconds() / took.Seconds())
	}
	return min(max(next, minPageSize), DefaultPageSize)
}

// restOf returns the token with which an expired list continues at the current version, "" if there
// is none.
func restOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// page handles an object of a page.
func (m *merging) page(raw []byte) error {
	o, err := m.f.item(m.l, raw)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed[o.Key] < o.RV {
		m.l.tree.Load(o)
	}
	return nil
}

// watch handles events until ctx is done.
func (m *merging) watch(ctx context.Context) {
	for ctx.Err() == nil {
		m.mu.Lock()
		from := max(m.first, m.seen-1) // the last version may have more changes
		m.mu.Unlock()
		err := m.f.Source.Watch(ctx, m.f.Resource, m.f.Encoding, source.WatchOptions{ResourceVersion: from}, m.event)
		if source.IsExpired(err) || source.IsRejected(err) || errors.Is(err, ErrDecode) {
			m.fail(fmt.Errorf("watching in parallel: %w", err))
			return
		}
		select {
		case <-time.After(baseDelay):
		case <-ctx.Done():
		}
	}
}

// event handles an event of the watch.
func (m *merging) event(ev source.Event) error {
	rv := ev.ResourceVersion
	var o *object.Object
	switch ev.Type {
	case source.WatchAccepted:
		return nil
	case api.Bookmark:
		m.f.keepBookmark(ev)
	default:
		var err error
		if o, err = m.f.item(m.l, ev.Object); err != nil {
			return err
		}
		rv = o.RV
	}
	m.mu.Lock()
	if m.over {
		m.mu.Unlock()
		return errMerged
	}
	if o != nil && m.changed[o.Key] < rv {
		m.changed[o.Key] = rv
		if ev.Type == api.Deleted {
			m.l.tree.Delete(o)
		} else {
			m.l.tree.Set(o)
		}
	}
	m.seen = max(m.seen, rv)
	m.mu.Unlock()
	select {
	case m.news <- struct{}{}:
	default:
	}
	return nil
}

// reach waits until the watch has reached rv, ends it there or later, and returns its version.
func (m *merging) reach(ctx context.Context, rv uint64) (uint64, error) {
	limit := time.After(mergeLimit)
	for {
		m.mu.Lock()
		seen := m.seen
		m.over = seen >= rv
		m.mu.Unlock()
		if seen >= rv {
			return seen, nil
		}
		select {
		case <-m.news:
		case <-limit:
			return 0, source.ErrNoBookmark
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}
