package reflector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/contain"
	"github.com/kubeweir/kubeweir/object"
)

// Reflector keeps a store equal to its source. One goroutine runs it.
//
//	          first use, without a checkpoint (else: resuming, see warm.go)
//	              |
//	              v              failed
//	         +---------+ -----------------> +---------+
//	+------> | listing |                    | backoff |
//	|        +---------+ <----------------- +---------+
//	|             | complete                  |     ^
//	|             v                           |     |
//	|        +----------+  ended, broken,     |     |
//	|        | watching | -- silent ----------|-----+
//	|        +----------+                     |     |
//	|             ^ accepted                  |     | failed
//	|             |                           v     |
//	|  expired,   |                       +------------+
//	+-------------+---------------------- |  resuming  |
//	   order                              +------------+
//	                                            | the version went back
//	                                            v
//	                                         rewound: the collection stops
//
// Listing is a watch with initial events if the source supports it, else a paged list. The first
// list fills the store, a later one replaces its state and sends the difference (Store.Replace).
// Watching applies events one by one. A watch that ends for any reason is resumed from the last
// version, so that no event is lost, seen twice or listed again. Only a source that has forgotten
// the version (410), or that contradicts itself, is listed again.
//
// Before a watch is resumed, the source is asked for its current version. A source that was
// restored from a backup is below the store's version. It would not reject the watch, but stay
// silent until its counter has passed the store's version, and then continue as if nothing had
// happened. If the counter has passed it already, the version does not tell, see past.go. (Restore
// etcd with --bump-revision, as Kubernetes requires.)
type Reflector struct {
	Options
	store  *store.Store // nil until the first list is complete
	health health
	image  *checkpoint.Checkpoint // nil if the collection is not kept
	// offer may publish the loaded state before the goroutine does. published is set when ready was
	// called.
	offer     offer
	published atomic.Bool

	// The following fields belong to the goroutine of Run.
	loaded *loadedState // what the store was made of, nil when it is known to be true
	relist bool         // the state has to be replaced by a list
	paged  bool         // the source does not support initial events
	// provisional: the last list may follow an outdated definition of the resource.
	provisional bool
	broken      int    // streaming lists that broke since the last complete list
	last        uint64 // version of the last event or bookmark of the open watch
	target      uint64 // the source's version before the watch was resumed
	vague       bool   // target was a while old when it arrived
	backoff     backoff
	refused     time.Time // since when the source rejects what it allowed before; zero while it does not
	broke       time.Time // when the watch first broke since the last list or checkPast; zero if it did not

	server atomic.Pointer[string] // who answered the last list, see Outage
	// holds is who sent what the store holds; it becomes server when a list is complete. unsure is
	// set while that may be wrong, because it is loaded and unconfirmed, or provisional. It is then
	// not saved, because nobody would know that after a restart.
	holds  atomic.Pointer[string]
	unsure atomic.Bool
	// unconfirmed is when the loaded state that is being served was true; nil if the served state
	// is confirmed.
	unconfirmed atomic.Pointer[time.Time]
	// confirmed is closed, by the goroutine of Run, when the state is confirmed.
	confirmed   chan struct{}
	isConfirmed bool

	progress atomic.Bool // the source is known to send bookmarks
	Versions *source.VersionReader
	// kept is set if the store's state was loaded, or began with what was loaded. listedAt is when
	// the last complete list began, nil before.
	kept     atomic.Bool
	listedAt atomic.Pointer[time.Time]
	kind     atomic.Pointer[source.ListMeta]
	bookmark atomic.Pointer[[]byte]
}

// Options configure a Reflector. All fields except Checkpointer are required.
type Options struct {
	Source   source.Source
	Resource *source.Resource
	Encoding api.Encoding
	Log      *slog.Logger
	Metrics  Metrics
	Listing  chan struct{} // slots for lists, shared by all reflectors
	Outage   *Outage
	Panics   *contain.Panics
	PageSize int64
	Jitter   func(n int64) int64 // returns a random number in [0, n)
	// Checkpointer is nil if nothing is kept.
	Checkpointer *checkpoint.Checkpointer
	// First is called with the first complete list, or with a loaded state, and returns the store
	// made of it. Ready is called when that store may be read, which is at once after a list.
	// Failed is called when an attempt has failed before that.
	First  func(*store.List) *store.Store
	Ready  func()
	Failed func(error)
	// Doubt is called when the state turned out to be of a past that the source does not have, with
	// the time at which the watch broke, or zero if the state was loaded.
	Doubt func(broke time.Time)
}

// Metrics are those of one collection.
type Metrics struct {
	Restarts *prometheus.CounterVec // by reason
	Events   *prometheus.CounterVec // by type
}

// New returns a Reflector. Run starts it.
func New(o Options) *Reflector {
	f := &Reflector{Options: o, backoff: backoff{jitter: o.Jitter}, confirmed: make(chan struct{})}
	f.Versions = source.NewVersionReader(o.Source, o.Resource, o.Encoding, f.Decode)
	f.image = o.Checkpointer.Checkpoint(o.Resource, o.Encoding, o.Log)
	return f
}

const (
	// DefaultPageSize is the page size of paged lists.
	DefaultPageSize = 500
	// silenceLimit is how long a watch with bookmarks, which come once a minute, may bring nothing.
	silenceLimit = 3 * time.Minute
	// initialSilence is how long a streaming list may bring nothing. A server that does not support
	// streaming lists should reject them; one that ignores the parameter never ends one.
	initialSilence = 20 * time.Second
)

// Errors that end a stream, besides those of the source.
var (
	errSilent = errors.New("no event and no bookmark for too long")
	errBehind = errors.New("the API server is behind others, it is waited for")
	errEnded  = errors.New("the watch ended")
	// ErrLate says that the source has changes that its watch does not bring.
	ErrLate = errors.New("the feed does not bring what the upstream has")
	// errNoInitialEnd is treated as ErrUnsupported.
	errNoInitialEnd = fmt.Errorf("the initial events did not end: %w", source.ErrUnsupported)
)

// DecodeError says that the source sent something that is not an object of the resource.
type DecodeError struct{ err error }

func (e *DecodeError) Error() string {
	return "cannot read an object of the upstream: " + e.err.Error()
}
func (e *DecodeError) Unwrap() error { return e.err }

// Run fills the store and keeps it up to date until ctx is done or it cannot continue. The error
// says why; it is the cause of ctx if that ended it.
func (f *Reflector) Run(ctx context.Context) error {
	f.load(ctx)
	defer f.offerLoaded()()
	for {
		began := time.Now()
		err := f.stream(ctx)
		fed := f.health.lost(err, f.Source.LastContact(), f.Source.Delay())
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		listed := f.relist
		reason, final := f.after(err)
		if f.refusedForLong(err) {
			reason, final = "refused", true
		}
		if f.loaded != nil {
			f.image.ForgetCluster() // another cluster may respond next time
		} else if f.broke.IsZero() && (reason == "error" || reason == "silent" || reason == "suspect") {
			f.broke = time.Now()
		}
		unloaded := final && f.unload(err)
		if errors.Is(err, errPast) {
			f.Doubt(f.broke)
		}
		if unloaded {
			continue
		}
		f.relist = f.relist || f.provisional
		if f.relist && !listed {
			f.backoff.reset() // the server responded, and lists are limited anyway
		}
		f.Metrics.Restarts.WithLabelValues(reason).Inc()
		if final {
			return err
		}
		if !f.published.Load() {
			f.publishUnconfirmed() // first: callers that are woken look at once
		}
		if !f.published.Load() && !errors.Is(err, errPart) {
			f.Failed(err)
		}
		if !fed && reason == "error" {
			f.Outage.suspect()
		}
		delay := f.backoff.next(err, fed && time.Since(began) >= healthyAfter)
		if !f.pause(ctx, reason, err, delay) {
			return context.Cause(ctx)
		}
	}
}

// brokenDelay bounds the pause after a stream was broken by something between here and a healthy
// server, because nothing tells when that is over.
const brokenDelay = 2 * time.Second

// pause waits before the next attempt: for delay, but not beyond the end of an outage.
func (f *Reflector) pause(ctx context.Context, reason string, err error, delay time.Duration) bool {
	over := f.Outage.over()
	switch {
	case f.Outage.recovering():
		delay = min(delay, recoveryDelay)
	case !source.IsStatus(err) && !f.Outage.isDown():
		delay = min(delay, brokenDelay)
	}
	f.Log.Debug("feed restarts", "reason", reason, "error", err, "delay", delay)
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	case <-over:
	}
	f.backoff.reset()
	t.Reset(time.Duration(f.backoff.jitter(int64(returnSpread))))
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// after decides what the end of a stream means for the next one. If final, there is none.
func (f *Reflector) after(err error) (reason string, final bool) {
	var decode *DecodeError
	switch {
	case errors.Is(err, errEnded):
		return "ended", false
	case errors.Is(err, store.ErrRewound):
		return "rewound", true
	case errors.As(err, &decode):
		return "decode", true
	case errors.Is(err, errSilent):
		return "silent", false
	case errors.Is(err, store.ErrSuspect):
		return "suspect", false
	case errors.Is(err, ErrLate):
		return "late", false
	case errors.Is(err, store.ErrOutOfOrder):
		f.relist = true
		return "order", false
	case source.IsExpired(err):
		f.relist = true
		return "expired", false
	case source.IsTooLarge(err):
		f.relist = true
		return "too_large", false
	}
	return "error", false
}

// refusedLimit is how long a source may reject what it allowed before. kube-apiserver rejects
// everything until it has read its RBAC objects.
const refusedLimit = time.Minute

// refusedForLong reports, after a stream ended with err, whether the source keeps rejecting what it
// allowed before. The collection then stops: otherwise its state would age forever, whereas reads
// without a collection are forwarded.
func (f *Reflector) refusedForLong(err error) bool {
	if !f.published.Load() || !apierrors.IsForbidden(err) {
		f.refused = time.Time{}
		return false
	}
	if f.refused.IsZero() {
		f.refused = time.Now()
	}
	return time.Since(f.refused) >= refusedLimit
}

// stream lists if necessary, and watches until the watch ends. It always returns an error; after a
// clean end it is errEnded.
func (f *Reflector) stream(ctx context.Context) error {
	if err := f.learnKind(ctx); err != nil {
		return err
	}
	if f.loaded != nil {
		if err := f.checkLoaded(ctx); err != nil {
			return err
		}
	}
	if f.store != nil && !f.relist {
		return f.resume(ctx)
	}
	return f.list(ctx)
}

// otherServer reports whether the objects were sent by another program than the one that responds
// now. After an upgrade of the upstream the same version of an object may read differently.
func (f *Reflector) otherServer(ctx context.Context) bool {
	now := f.Outage.Now(ctx)
	listed := f.ListedBy()
	return now != "" && listed != "" && now != listed
}

// ListedBy returns the program that answered the last list, "" if unknown. It is safe for
// concurrent use.
func (f *Reflector) ListedBy() string {
	if s := f.server.Load(); s != nil {
		return *s
	}
	return ""
}

// maxBroken is how many streaming lists in a row may break. A server that is too busy to finish one
// may still finish pages.
const maxBroken = 2

// list lists, and watches from there.
func (f *Reflector) list(ctx context.Context) error {
	server := f.Outage.Known(ctx)
	f.server.Store(&server)
	if err := f.learnColumns(ctx); err != nil {
		return err
	}
	l, err := f.startList(ctx)
	if err != nil {
		return err
	}
	defer l.release()
	streams := !f.paged && f.broken < maxBroken
	if f.compressed() {
		whole, err := f.listCompressed(ctx, l, streams)
		if !errors.Is(err, errQuick) {
			return f.listed(ctx, l, whole, err)
		}
		l.tree = store.NewTree()
	}
	if streams {
		err := f.watch(ctx, source.WatchOptions{SendInitialEvents: true}, l)
		if l.complete {
			return err
		}
		if !errors.Is(err, source.ErrUnsupported) && !apierrors.IsInvalid(err) {
			if l.begun {
				f.broken++
			}
			return err
		}
		f.Log.Debug("no streaming list, listing in pages", "error", err)
		f.paged = true
		l.tree = store.NewTree()
	}
	whole, err := f.listPages(ctx, l)
	return f.listed(ctx, l, whole, err)
}

// listed completes a paged list, unless it failed with err, and watches from there.
func (f *Reflector) listed(ctx context.Context, l *listing, whole *store.List, err error) error {
	if err != nil {
		return err
	}
	if err := f.complete(l, whole); err != nil {
		return err
	}
	l.release() // the watch may last for hours
	return f.watch(ctx, source.WatchOptions{ResourceVersion: whole.RV}, nil)
}

// learnKind asks the source once for the kind of its lists and for the warnings of the resource.
func (f *Reflector) learnKind(ctx context.Context) error {
	if f.kind.Load() != nil {
		return nil
	}
	meta, err := f.listOne(ctx)
	if err != nil {
		return fmt.Errorf("asking for the list's kind: %w", err)
	}
	f.kind.Store(&source.ListMeta{Kind: meta.Kind, APIVersion: meta.APIVersion, Warnings: meta.Warnings})
	return nil
}

// learnColumns asks a server of another release than the printer's for the columns of its Tables.
// Tables are made from JSON.
func (f *Reflector) learnColumns(ctx context.Context) error {
	printer, ok := f.Resource.Printer.(*table.Following)
	if !ok || f.Encoding != api.JSON {
		return nil
	}
	src, ok := f.Source.(source.ColumnSource)
	if !ok || !printer.Follows(f.ListedBy()) {
		printer.Follow(nil)
		return nil
	}
	ctx, cancel := source.WithTimeout(ctx, f.Source, source.SmallCallTimeout)
	defer cancel()
	columns, err := src.Columns(ctx, f.Resource)
	if err != nil {
		return fmt.Errorf("asking for the columns of Tables: %w", err)
	}
	printer.Follow(columns)
	if printer.Traits().NoTables {
		f.Log.Info("the upstream's release has other columns in its Tables of this resource, which are forwarded")
	}
	return nil
}

// listOne lists at most one object.
func (f *Reflector) listOne(ctx context.Context) (source.ListMeta, error) {
	ctx, cancel := source.WithTimeout(ctx, f.Source, source.SmallCallTimeout)
	defer cancel()
	return f.Source.List(ctx, f.Resource, f.Encoding, source.ListOptions{Limit: 1}, func([]byte) error { return nil })
}

// checkRewound asks for the source's version, which must not be below the store's. The store's is
// read first, because the source's can only have grown since.
func (f *Reflector) checkRewound(ctx context.Context) (current uint64, err error) {
	held, asked := f.store.LatestRV(), time.Now()
	versionCtx, cancel := source.WithTimeout(ctx, f.Source, source.SmallCallTimeout)
	defer cancel()
	current, err = f.Source.CurrentVersion(versionCtx, f.Resource)
	if errors.Is(err, source.ErrUnsupported) {
		var meta source.ListMeta
		meta, err = f.listOne(ctx)
		current = meta.ResourceVersion
	}
	if err != nil {
		return 0, fmt.Errorf("asking for the current version: %w", err)
	}
	if current < held && f.behind(versionCtx, held) {
		return 0, fmt.Errorf("%w: it is at %d, what is held at %d", errBehind, current, held)
	}
	if current < held {
		return 0, fmt.Errorf("%w: from %d to %d", store.ErrRewound, held, current)
	}
	f.target, f.vague = current, time.Since(asked) >= settling
	return current, nil
}

// behind reports whether the server that was asked for its version may lag behind others of the
// same store.
func (f *Reflector) behind(ctx context.Context, held uint64) bool {
	src, ok := f.Source.(source.ReplicatedSource)
	if !ok {
		return false
	}
	newest, err := src.NewestVersion(ctx, f.Resource)
	return newest >= held || err != nil && !errors.Is(err, source.ErrUnsupported)
}

// watch reads one stream to its end, see stream. l, if not nil, collects the initial events.
func (f *Reflector) watch(ctx context.Context, opts source.WatchOptions, l *listing) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.health.opened(l == nil, max(opts.ResourceVersion, f.target), f.vague, cancel)
	dog := &watchdog{bite: cancel}
	defer dog.stop()
	if l != nil {
		dog.watch(initialSilence, errNoInitialEnd)
	}

	f.last = opts.ResourceVersion
	var failed error // the source may wrap or replace it
	err := f.Source.Watch(ctx, f.Resource, f.Encoding, opts, func(ev source.Event) error {
		dog.alive()
		if ev.Type == source.WatchAccepted {
			f.Outage.answered()
		}
		if l != nil {
			var done bool
			if done, failed = f.initial(l, ev); done {
				l.release()
				l = nil
				dog.stop()
			}
			return failed
		}
		if ev.Type == api.Bookmark {
			f.progress.Store(true)
		}
		if f.progress.Load() {
			dog.watch(silenceLimit, errSilent)
		}
		failed = f.live(ev)
		f.health.sign(f.last, ev.Type != source.WatchAccepted)
		if f.loaded != nil && failed == nil {
			failed = f.caughtUp(ctx)
		}
		return failed
	})
	switch {
	case failed != nil:
		return failed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	return errEnded
}

// live handles an event after the initial ones.
func (f *Reflector) live(ev source.Event) error {
	switch ev.Type {
	case source.WatchAccepted:
		return nil
	case api.Bookmark:
		return f.bookmarked(ev)
	}
	return f.event(ev)
}

// event applies one event.
func (f *Reflector) event(ev source.Event) error {
	o, err := f.Decode(ev.Object)
	if err != nil {
		return err
	}
	f.Metrics.Events.WithLabelValues(ev.Type.String()).Inc()
	f.last = max(f.last, o.RV)
	if err := f.store.Apply(ev.Type, o); err != nil {
		return fmt.Errorf("%s %s at %d: %w", ev.Type, o.Key, o.RV, err)
	}
	return nil
}

// bookmarked handles a bookmark. It may be below the store's version, because a probe may have
// proved a higher one, but not below what came before it on the same watch.
func (f *Reflector) bookmarked(ev source.Event) error {
	if ev.ResourceVersion < f.last {
		return store.ErrSuspect
	}
	f.last = ev.ResourceVersion
	f.keepBookmark(ev)
	f.store.Progress(ev.ResourceVersion)
	return nil
}

// keepBookmark keeps the object of the source's first bookmark.
func (f *Reflector) keepBookmark(ev source.Event) {
	if ev.Object != nil && f.bookmark.Load() == nil {
		f.bookmark.Store(&ev.Object)
	}
}

// BookmarkTemplate returns the object of the source's first bookmark, nil before that. It must not
// be modified.
func (f *Reflector) BookmarkTemplate() []byte {
	if b := f.bookmark.Load(); b != nil {
		return *b
	}
	return nil
}

// ListMeta returns the kind and warnings of the source's lists. It must not be modified.
func (f *Reflector) ListMeta() *source.ListMeta { return f.kind.Load() }

// Server returns the program that sent what the store holds, "" if unknown.
func (f *Reflector) Server() (server string) {
	if held := f.holds.Load(); held != nil {
		server = *held
	}
	return server
}

// IsUnsure reports whether the state may be wrong, so that it must not be saved.
func (f *Reflector) IsUnsure() bool { return f.unsure.Load() }

// IsLoaded reports whether the store's state was loaded, or began with what was loaded.
func (f *Reflector) IsLoaded() bool { return f.kept.Load() }

// IsUnconfirmed reports whether the served state was loaded and is not confirmed by the source.
func (f *Reflector) IsUnconfirmed() bool { return f.unconfirmed.Load() != nil }

// WhenConfirmed returns a channel that is closed when the state is confirmed.
func (f *Reflector) WhenConfirmed() <-chan struct{} { return f.confirmed }

// Checkpoint returns the collection's checkpoint, nil if it is not kept.
func (f *Reflector) Checkpoint() *checkpoint.Checkpoint { return f.image }

// State returns the state of a complete collection. After staleAfter without a sign of life from
// the connection, it is Stale.
func (f *Reflector) State(staleAfter time.Duration) State {
	state := f.health.state(f.Source.LastContact(), f.Source.Delay(), staleAfter)
	if at := f.unconfirmed.Load(); at != nil {
		state.Phase, state.Since, state.LastContact = Stale, *at, *at // until it is confirmed
	}
	return state
}

// Decode decodes an object of the source. The error is a *DecodeError.
func (f *Reflector) Decode(raw []byte) (*object.Object, error) {
	// Objects stay for long, and so would unused capacity.
	if cap(raw)-len(raw) > len(raw)/16 {
		raw = bytes.Clone(raw)
	}
	o, err := f.Resource.Schema.Decode(f.Encoding, raw)
	if err != nil {
		return nil, &DecodeError{err}
	}
	return o, nil
}
