package cachetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
)

var _ source.Source = (*Source)(nil)

// List implements source.Source. Its continue tokens are kube-apiserver's.
func (s *Source) List(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.ListOptions, visit func([]byte) error) (source.ListMeta, error) {
	call := fmt.Sprintf("list %s rv=%q match=%q limit=%d", res.Resource, opts.ResourceVersion, opts.ResourceVersionMatch, opts.Limit)
	method := "list"
	if opts.Continue != "" {
		call += " continue"
		method = "page"
	}
	if err := s.enter(ctx, method, call); err != nil {
		return source.ListMeta{}, err
	}
	items, meta, err := s.page(res, opts)
	if err != nil {
		return source.ListMeta{}, err
	}
	for _, c := range items {
		if err := visit(Encode(c.Object, enc)); err != nil {
			return source.ListMeta{}, err
		}
	}
	return meta, ctx.Err()
}

func (s *Source) page(res *source.Resource, opts source.ListOptions) ([]Change, source.ListMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rev, from, err := s.positionLocked(opts)
	if err != nil {
		return nil, source.ListMeta{}, err
	}
	meta := source.ListMeta{
		ResourceVersion: rev,
		Kind:            res.Kind + "List",
		APIVersion:      res.GroupVersion().String(),
	}
	var items []Change
	for _, c := range s.resourceLocked(res.GroupVersionResource).at(rev) {
		if c.Key < from {
			continue
		}
		if opts.Limit > 0 && int64(len(items)) == opts.Limit {
			meta.Continue = api.ContinueToken{ResourceVersion: int64(rev), Start: c.Key}.Encode()
			break
		}
		items = append(items, c)
	}
	return items, meta, nil
}

// positionLocked returns where a page begins: its revision and first key.
func (s *Source) positionLocked(opts source.ListOptions) (rev uint64, from string, err error) {
	if opts.Continue != "" {
		token, err := api.DecodeContinue(opts.Continue)
		if err == nil && uint64(token.ResourceVersion) < s.mu.compacted {
			err = apierrors.NewResourceExpired("The provided continue parameter is too old")
		}
		return uint64(token.ResourceVersion), token.Start, err
	}
	if opts.ResourceVersion == "" || opts.ResourceVersion == "0" {
		return s.mu.rev, "", nil
	}
	rev, err = strconv.ParseUint(opts.ResourceVersion, 10, 64)
	switch {
	case err != nil:
		return 0, "", apierrors.NewBadRequest(err.Error())
	case rev > s.mu.rev:
		return 0, "", api.NewTooLargeResourceVersion(rev, s.mu.rev, 1)
	case opts.ResourceVersionMatch != "Exact":
		return s.mu.rev, "", nil
	case rev < s.mu.compacted:
		return 0, "", apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	return rev, "", nil
}

// Watch implements source.Source.
func (s *Source) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	call := fmt.Sprintf("watch %s rv=%d initial=%v timeout=%d", res.Resource, opts.ResourceVersion, opts.SendInitialEvents, opts.TimeoutSeconds)
	if err := s.enter(ctx, "watch", call); err != nil {
		return err
	}
	st, initial, err := s.open(res, enc, opts)
	if err != nil {
		return err
	}
	defer func() { s.locked(func() { delete(s.mu.streams, st) }) }()
	// Bookmarks are due each minute and two seconds before the end.
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	due := func() { s.locked(func() { st.timer = !s.mu.faults.holdBookmarks }) }
	var last, end <-chan time.Time
	if timeout := time.Duration(opts.TimeoutSeconds) * time.Second; timeout > 0 {
		last, end = time.After(timeout-2*time.Second), time.After(timeout)
	}
	if err := handle(source.Event{Type: source.WatchAccepted}); err != nil {
		return err
	}
	for _, ev := range initial {
		if err := handle(ev); err != nil {
			return err
		}
	}
	for {
		events, done, wait, err := s.next(st)
		for _, ev := range events {
			if err := handle(ev); err != nil {
				return err
			}
		}
		if done || err != nil {
			return err
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-wait:
		case <-ticker.C:
			due()
		case <-last:
			due()
		case <-end:
			s.locked(func() { st.ended = true })
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// open begins a watch and returns the initial events, including the bookmark.
func (s *Source) open(res *source.Resource, enc api.Encoding, opts source.WatchOptions) (*stream, []source.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rev := s.mu.rev
	switch {
	case opts.TimeoutSeconds > 0 && s.mu.faults.noTimeouts:
		return nil, nil, apierrors.NewInternalError(errors.New("no timeouts"))
	case opts.SendInitialEvents && s.mu.faults.noWatchList:
		return nil, nil, fmt.Errorf("sendInitialEvents: %w", source.ErrUnsupported)
	case opts.SendInitialEvents && opts.ResourceVersion > rev:
		return nil, nil, api.NewTooLargeResourceVersion(opts.ResourceVersion, rev, 1)
	case !opts.SendInitialEvents && opts.ResourceVersion < s.mu.compacted:
		return nil, nil, api.NewExpiredWatch(opts.ResourceVersion, s.mu.compacted)
	}
	st := &stream{res: res, enc: enc, cursor: opts.ResourceVersion}
	s.mu.streams[st] = struct{}{}
	if !opts.SendInitialEvents {
		return st, nil, nil
	}
	st.cursor = rev
	var events []source.Event
	for _, c := range s.resourceLocked(res.GroupVersionResource).at(rev) {
		events = append(events, source.Event{Type: api.Added, Object: Encode(c.Object, enc)})
	}
	events = append(events, source.Event{Type: api.Bookmark, ResourceVersion: rev, InitialEventsEnd: true, Object: bookmark(res, enc, rev)})
	return st, events, nil
}

// next returns what a watch has to deliver now. done with a nil error is a clean end; otherwise
// wait is closed when there may be more.
func (s *Source) next(st *stream) (events []source.Event, done bool, wait <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.broken {
		return nil, true, nil, st.err
	}
	if st.held || s.mu.faults.silent {
		return nil, false, s.mu.changed, nil
	}
	events, st.rest = st.rest, nil
	r := s.resourceLocked(st.res.GroupVersionResource)
	for _, c := range r.log[r.position(st.cursor):] {
		events = append(events, source.Event{Type: c.Type, Object: Encode(c.Object, st.enc)})
	}
	if st.cut {
		if len(events) >= st.left {
			st.broken = true
			return events[:st.left], true, nil, ErrDown
		}
		st.left -= len(events)
	}
	if st.hold && len(events) >= st.left {
		st.hold, st.held, st.cursor = false, true, s.mu.rev
		events, st.rest = events[:st.left:st.left], events[st.left:]
		return events, false, s.mu.changed, nil
	}
	behind := st.cursor > s.mu.rev // a future version: silence until it has passed
	if !behind {
		st.cursor = s.mu.rev
	}
	if st.timer && !behind {
		st.timer = false
		events = append(events, source.Event{Type: api.Bookmark, ResourceVersion: s.mu.rev, Object: bookmark(st.res, st.enc, s.mu.rev)})
	}
	return events, st.ended, s.mu.changed, nil
}

// CurrentVersion implements source.Source.
func (s *Source) CurrentVersion(ctx context.Context, res *source.Resource) (uint64, error) {
	if err := s.enter(ctx, "version", "version "+res.Resource); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.faults.noVersion {
		return 0, fmt.Errorf("current version: %w", source.ErrUnsupported)
	}
	return s.mu.rev, nil
}

// Server implements source.Source. It is not among the Calls.
func (s *Source) Server(ctx context.Context) (server string, err error) {
	s.locked(func() {
		s.mu.requested++
		server = s.mu.server
	})
	return server, s.reach(ctx)
}

// SetServer sets the result of Server, which is "1" at first.
func (s *Source) SetServer(server string) { s.locked(func() { s.mu.server = server }) }

// Requested returns the number of calls of Server.
func (s *Source) Requested() (n int) {
	s.locked(func() { n = s.mu.requested })
	return n
}

// SetDelay sets the delay of events.
func (s *Source) SetDelay(d time.Duration) { s.locked(func() { s.mu.delay = d }) }

// Delay implements source.Source.
func (s *Source) Delay() (d time.Duration) {
	s.locked(func() { d = s.mu.delay })
	return d
}

// LastContact implements source.Source.
func (s *Source) LastContact() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.frozen.IsZero() {
		return s.mu.frozen
	}
	return time.Now()
}

// Encode encodes an object as a Source passes it to the cache.
func Encode(obj Object, enc api.Encoding) []byte {
	if enc == api.Protobuf {
		m, ok := obj.(interface{ Marshal() ([]byte, error) })
		if !ok {
			panic(fmt.Sprintf("cachetest: %T has no protobuf encoding", obj))
		}
		return must(m.Marshal())
	}
	return must(json.Marshal(obj))
}

// bookmark returns the object of a bookmark.
func bookmark(res *source.Resource, enc api.Encoding, rev uint64) []byte {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(rev)}}
	if enc == api.Protobuf {
		return must(m.Marshal())
	}
	m.SetGroupVersionKind(res.GroupVersion().WithKind(res.Kind))
	return must(json.Marshal(m))
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
