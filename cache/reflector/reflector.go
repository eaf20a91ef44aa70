package reflector

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/object"
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
// Before a watch is resumed, the reflector requests the current version of the source. A source
// that was restored from a backup is below the store's version. It would not reject the watch, but
// stay silent until its counter has passed the store's version, and then continue as if nothing had
// happened. If the counter has passed it already, the version does not show the restore, see
// history.go. (Restore etcd with --bump-revision, as Kubernetes requires.)
type Reflector struct {
	Options
	store  *store.Store // nil until the first list is complete
	health health
	// Checkpoint is the checkpoint of the collection, nil if it is not saved.
	Checkpoint *checkpoint.Checkpoint
	// published is set when ready was called.
	published atomic.Bool

	// The following fields belong to the goroutine of Run.
	withdraw func()       // ends the offer of the loaded state, see offerLoaded
	loaded   *loadedState // the checkpoint that the store was made of, nil once it is confirmed
	relist   bool         // the state has to be replaced by a list
	paged    bool         // the source does not support initial events
	// provisional: the last list may follow an outdated definition of the resource.
	provisional   bool
	broken        int    // streaming lists that broke since the last complete list
	last          uint64 // version of the last event or bookmark of the open watch
	target        uint64 // the source's version before the watch was resumed
	targetDelayed bool   // target was a while old when it arrived
	backoff       backoff
	rejectedSince time.Time // since when the source rejects what it allowed before; zero while it does not
	brokeAt       time.Time // when the watch first broke since the last list or checkHistory; zero if it did not

	server atomic.Pointer[string] // the server at the start of the last list, see Outage
	// heldFrom is the server that sent the state of the store; it becomes server when a list is
	// complete. uncertain is set while that may be wrong, because the state is loaded and
	// unconfirmed, or provisional. It is then not saved, because a restart would lose that
	// information.
	heldFrom  atomic.Pointer[string]
	uncertain atomic.Bool
	// unconfirmed is when the loaded state that is being served was true; nil if the served state
	// is confirmed.
	unconfirmed atomic.Pointer[time.Time]
	// confirmed ends when the state is confirmed.
	confirmed    context.Context
	setConfirmed context.CancelFunc

	progress atomic.Bool // the source is known to send bookmarks
	// NoVersions is set when the source has no usable lists of the resource's versions.
	NoVersions atomic.Bool
	// fromCheckpoint is set if the store's state was loaded, or began with what was loaded.
	// listedAt is when the last complete list began, nil before.
	fromCheckpoint atomic.Bool
	listedAt       atomic.Pointer[time.Time]
	kind           atomic.Pointer[source.ListMeta]
	bookmark       atomic.Pointer[[]byte]
}

// Options configure a Reflector. All fields except Checkpointer are required.
type Options struct {
	Source   source.Source
	Resource *source.Resource
	Encoding api.Encoding
	Log      *slog.Logger
	Restarts *prometheus.CounterVec // of the collection, by reason
	Events   *prometheus.CounterVec // of the collection, by type
	Listing  chan struct{}          // slots for lists, shared by all reflectors
	Outage   *Outage
	Panics   *contain.Panics
	// StaleAfter is how long a healthy connection may be silent.
	StaleAfter time.Duration
	// Checkpointer is nil if nothing is saved.
	Checkpointer *checkpoint.Checkpointer
	// First is called with the first complete list, or with a loaded state, and returns the store
	// with its objects. Ready is called when that store may be read, which is at once after a list;
	// loaded is true after a loaded state. Failed is called when an attempt has failed before that.
	First  func(*store.List) *store.Store
	Ready  func(loaded bool)
	Failed func(error)
	// OnOtherHistory is called when the state turned out to be of a past that the source does not
	// have, with the time at which the watch broke, or zero if the state was loaded.
	OnOtherHistory func(broke time.Time)
}

// New returns a Reflector. Run starts it.
func New(o Options) *Reflector {
	f := &Reflector{Options: o, health: health{source: o.Source}, withdraw: func() {}}
	f.confirmed, f.setConfirmed = context.WithCancel(context.Background())
	f.server.Store(new(string))
	f.heldFrom.Store(new(string))
	f.bookmark.Store(new([]byte))
	f.Checkpoint = o.Checkpointer.Checkpoint(o.Resource, o.Encoding, o.Log)
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

// brokenDelay bounds the pause after a stream was broken by something between here and a healthy
// server, because the end of such a fault is not visible.
const brokenDelay = 2 * time.Second

// pause waits before the next attempt: for delay, but not beyond the end of an outage.
func (f *Reflector) pause(ctx context.Context, reason string, err error, delay time.Duration) bool {
	down, recovering, over := f.Outage.state()
	switch {
	case recovering:
		delay = min(delay, recoveryDelay)
	case !source.IsStatus(err) && !down:
		delay = min(delay, brokenDelay)
	}
	f.Log.Debug("reflector restarting", "reason", reason, "error", err, "delay", delay)
	select {
	case <-time.After(delay):
	case <-ctx.Done():
	case <-over:
		f.backoff.reset()
		select {
		case <-time.After(time.Duration(jitter(int64(returnSpread)))):
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// ListedBy returns the program that responded to the last list, "" if unknown. It is safe for
// concurrent use.
func (f *Reflector) ListedBy() string { return *f.server.Load() }

// listOne lists at most one object.
func (f *Reflector) listOne(ctx context.Context) (source.ListMeta, error) {
	ctx, cancel := source.WithTimeout(ctx, f.Source, source.SmallCallTimeout)
	defer cancel()
	return f.Source.List(ctx, f.Resource, f.Encoding, source.ListOptions{Limit: 1}, func([]byte) error { return nil })
}

// keepBookmark keeps the object of the source's first bookmark.
func (f *Reflector) keepBookmark(ev source.Event) {
	if ev.Object != nil && *f.bookmark.Load() == nil {
		f.bookmark.Store(&ev.Object)
	}
}

// BookmarkTemplate returns the object of the source's first bookmark, nil before that. It must not
// be modified.
func (f *Reflector) BookmarkTemplate() []byte { return *f.bookmark.Load() }

// ListMeta returns the kind and warnings of the source's lists. It must not be modified.
func (f *Reflector) ListMeta() *source.ListMeta { return f.kind.Load() }

// IsUnconfirmed reports whether the served state was loaded and is not confirmed by the source.
func (f *Reflector) IsUnconfirmed() bool { return f.unconfirmed.Load() != nil }

// WhenConfirmed returns a channel that is closed when the state is confirmed.
func (f *Reflector) WhenConfirmed() <-chan struct{} { return f.confirmed.Done() }

// State returns the state of a complete collection. After Options.StaleAfter without a sign of life
// from the connection, it is Stale.
func (f *Reflector) State() State {
	state := f.health.state(f.StaleAfter)
	if at := f.unconfirmed.Load(); at != nil {
		state.Phase, state.Since, state.LastContact = Stale, *at, *at // until it is confirmed
	}
	return state
}

// Decode decodes an object of the source. The error is an ErrDecode.
func (f *Reflector) Decode(raw []byte) (*object.Object, error) {
	// Objects stay for long, and so would unused capacity.
	if cap(raw)-len(raw) > len(raw)/16 {
		raw = bytes.Clone(raw)
	}
	o, err := f.Resource.Schema.Decode(f.Encoding, raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDecode, err)
	}
	return o, nil
}

// SendsBookmarks reports whether the source is known to send bookmarks.
func (f *Reflector) SendsBookmarks() bool { return f.progress.Load() }

// loadedState is the state of a loaded store until it is confirmed.
type loadedState struct {
	checkpoint *checkpoint.Loaded
	// current is the source's version before the watch was opened, which was read at the time
	// requested; 0 before that.
	current   uint64
	requested time.Time
	// seconds is the timeout of the last watch and brought the time of its last event. quiet ends
	// the watch when that is long ago; without any event, after timeout.
	seconds int64
	brought time.Time
	quiet   *time.Timer
	timeout time.Duration
}
