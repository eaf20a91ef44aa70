package reflector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/object"
)

// A list over a slow link takes longer than much else lasts: kube-apiserver ends a
// response after a minute, forgets the version of a list after five, and ends a streaming
// list, which is not compressed, when too many changes wait behind it. Each of these
// would begin the list anew, for ever.
//
// So where lists come compressed, the feed begins with a page. If that was slow, or there
// is no streaming list, it goes on in pages that take a few seconds each, also after one
// that broke off. When that takes long, a watch from the version of the first page runs
// beside it. Pages may then be of later versions, as those are after the first has
// expired: an object is as its last event says, or without one as its page does. Once the
// watch has come to the version of the last page, the state is that of the version which
// the watch has come to.
const (
	// pageTime is how long a page should take; minPageSize objects it has at least, the
	// first one firstPageSize.
	pageTime      = 5 * time.Second
	minPageSize   = 10
	firstPageSize = 100
	// quickPage is how long the first page takes at most where the link is not slow.
	quickPage = 100 * time.Millisecond
	// maxBrokenPages is how many pages in a row may break off.
	maxBrokenPages = 10
	// mergeAfter is from when on a list takes long. mergeLimit is how long its watch may
	// take to come to the version of the last page: bookmarks come once a minute.
	mergeAfter = 10 * time.Second
	mergeLimit = 3 * time.Minute
)

// errQuick: the first page came fast, and there are more, which a streaming list brings
// for less.
var errQuick = errors.New("the link is fast")

// errMerged ends the watch of a list that is complete.
var errMerged = errors.New("the list is complete")

// compressed reports whether lists come compressed, unlike watches.
func (f *Reflector) compressed() bool {
	source, ok := f.Source.(source.CompressedSource)
	return ok && source.Compressed()
}

// merging is a list in pages, and what happens to its objects meanwhile.
type merging struct {
	f        *Reflector
	l        *listing
	streams  bool   // the source has streaming lists
	begun    bool   // the watch; the feed's goroutine only
	first    uint64 // the version of the first page, when the watch has begun
	watching sync.WaitGroup

	mu      sync.Mutex
	changed map[string]uint64 // guarded by mu: the version of the last event of an object
	seen    uint64            // guarded by mu: the version that the watch has come to
	over    bool              // guarded by mu: nothing more is taken
	err     error             // guarded by mu: why it cannot go on
	news    chan struct{}     // holds one when seen or err has changed
}

// listCompressed lists in pages, see above. If the source streams lists, the error may be
// errQuick.
func (f *Reflector) listCompressed(ctx context.Context, l *listing, streams bool) (*store.List, error) {
	m := &merging{f: f, l: l, streams: streams, changed: make(map[string]uint64), news: make(chan struct{}, 1)}
	defer m.watching.Wait()
	watchCtx, stop := context.WithCancel(ctx)
	defer stop()
	rv, err := m.pages(ctx, watchCtx)
	if err == nil && m.begun {
		rv, err = m.reach(ctx, rv)
	}
	if err != nil {
		return nil, f.wrapListError(ctx, err)
	}
	return l.whole(rv)
}

// pages reads the pages and returns the highest of their versions. A watch that runs
// beside them ends with watchCtx.
func (m *merging) pages(ctx, watchCtx context.Context) (newest uint64, err error) {
	f, broken, began, first := m.f, 0, time.Now(), uint64(0)
	opts := source.ListOptions{Limit: min(f.PageSize, firstPageSize)}
	for {
		start := time.Now()
		meta, err := f.Source.List(ctx, f.Resource, f.Encoding, opts, m.page)
		rest := restOf(err)
		var decode *DecodeError
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
		case ctx.Err() != nil, source.IsStatus(err), errors.As(err, &decode), broken == maxBrokenPages:
			return 0, err
		default:
			broken++
			opts.Limit = max(minPageSize, opts.Limit/4)
			f.Outage.suspect()
			if !f.pause(ctx, "page", err, f.backoff.next(err, false)) {
				return 0, err
			}
		}
		if first != 0 && !m.begun && (rest != "" || time.Since(began) >= mergeAfter) {
			f.Log.Debug("a list takes long, what happens meanwhile is watched")
			m.begun, m.first, m.seen = true, first, first
			f.Panics.Go(&m.watching, "feed", func() { m.watch(watchCtx) })
		}
		if err := m.failed(); err != nil {
			return 0, err
		}
	}
}

// nextPage is the size of the page after one of limit objects that took so long.
func (f *Reflector) nextPage(limit int64, took time.Duration) int64 {
	next := 2 * limit
	if took > pageTime/2 {
		next = int64(float64(limit) * pageTime.Seconds() / took.Seconds())
	}
	return min(max(next, minPageSize), f.PageSize)
}

// restOf is the token with which a list goes on that has expired, at the version of that
// time.
func restOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// page takes an object of a page.
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

// watch takes what happens until ctx is done.
func (m *merging) watch(ctx context.Context) {
	for ctx.Err() == nil {
		m.mu.Lock()
		from := max(m.first, m.seen-1) // of the last one there may be more
		m.mu.Unlock()
		err := m.f.Source.Watch(ctx, m.f.Resource, m.f.Encoding, source.WatchOptions{ResourceVersion: from}, m.event)
		var decode *DecodeError
		if source.IsExpired(err) || source.IsRejected(err) || errors.As(err, &decode) {
			m.mu.Lock()
			m.err = fmt.Errorf("watching meanwhile: %w", err)
			m.mu.Unlock()
			m.tell()
			return
		}
		retry := time.NewTimer(baseDelay)
		select {
		case <-retry.C:
		case <-ctx.Done():
		}
		retry.Stop()
	}
}

// event takes an event of the watch.
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
	m.tell()
	return nil
}

func (m *merging) tell() {
	select {
	case m.news <- struct{}{}:
	default:
	}
}

func (m *merging) failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// reach waits until the watch has come to rv or further, stops at the version that it has
// come to, and returns that.
func (m *merging) reach(ctx context.Context, rv uint64) (uint64, error) {
	limit := time.NewTimer(mergeLimit)
	defer limit.Stop()
	for {
		m.mu.Lock()
		seen, err := m.seen, m.err
		m.over = err == nil && seen >= rv
		m.mu.Unlock()
		if err != nil || seen >= rv {
			return seen, err
		}
		select {
		case <-m.news:
		case <-limit.C:
			return 0, source.ErrNoBookmark
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}
