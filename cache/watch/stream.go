package watch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/form"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/internal/shard"
	"github.com/kubeweir/kubeweir/watchmux"
)

// stream is one client watch. It has no goroutine: kick queues it for delivery when its watcher has
// events, its timer fires, or it is to end.
//
//	        kick                 kick
//	idle ----------> queued  ----------> again
//	 ^                 |  delivery         | delivery
//	 +-----------------+ <-----------------+ (once more)
type stream struct {
	owner *Watches
	c     Collection
	req   *Request
	// from is the version after which events are delivered.
	from     uint64
	id       uint64 // among the streams of owner
	began    time.Time
	deadline time.Time
	// events counts the events that were sent, without the initial ones.
	events atomic.Uint64

	state atomic.Uint32
	// served is when the last delivery ended. It belongs to whoever made the state queued.
	served time.Time
	// due and next belong to owner.writers: until when the stream waits, and the one behind it.
	due  time.Time
	next *stream
	// reason is why the watch is to end, nil otherwise.
	reason atomic.Pointer[reason.WatchEnd]
	// leaving is set by Stop, which waits for the current delivery: it makes a scan of many objects
	// end.
	leaving atomic.Bool

	// mu excludes delivery and Stop from each other and guards all fields below.
	mu       sync.Mutex
	w        api.StreamWriter
	body     form.Watch
	watcher  *watchmux.Watcher
	stopped  bool
	writing  bool            // within WriteFrames
	initial  *read.Selection // objects to be sent as ADDED, nil when done
	markEnd  bool            // the bookmark after the initial events is due
	failure  *apierrors.StatusError
	waiting  waiting
	bookmark time.Time // when the next one is due; zero for never
	owed     bool      // one is due after the events before it
	last     uint64    // version of the last event sent
	timer    *time.Timer
	wake     time.Time // when timer fires
	ended    reason.WatchEnd
}

const (
	streamIdle uint32 = iota
	streamQueued
	streamAgain
)

// Request is one authorized watch.
type Request struct {
	// Filter selects the objects; nil selects all.
	Filter *object.Filter
	// Options are the parsed parameters. Their selectors are compiled in Filter.
	Options api.ListOptions
	Rep     api.Representation
	// Compression is what the client accepts. Watches with more than api.CompressionThreshold bytes
	// of initial events are compressed.
	Compression api.Compression
	// MostRecent is the version that the collection must hold before the watch starts if
	// Options.ResourceVersion is unset. The caller has proved that it is current.
	MostRecent uint64
	// ForwardExpired, if not nil, is called if the requested version is older than the history, which
	// cannot be extended. If it returns true, Watch returns ErrForward instead of sending an ERROR
	// event: the upstream may still know the version.
	ForwardExpired func() bool
	// Message, if not nil, makes each event a message of a transport that has messages: it appends
	// the header of a message of size bytes, and the delimiters of a protobuf stream are left out.
	// Messages are not compressed.
	Message func(dst []byte, size int) []byte
	// Pace is how fast events are delivered. The zero value means as fast as possible.
	Pace Pace
	// Ended, if not nil, is called once with the reason when the watch has ended.
	Ended func(reason.WatchEnd)
	// Client describes the client to operators.
	Client Client
}

// The duration of watches and the period of bookmarks are kube-apiserver's
// (k8s.io/apiserver/pkg/storage/cacher, --min-request-timeout).
const (
	bookmarkPeriod      = time.Minute
	bookmarkBeforeEnd   = 2 * time.Second
	minWatchDuration    = 30 * time.Minute
	initialFramesAtOnce = 256
	eventsAtOnce        = 256
)

// Collection is what a watch needs of a collection. The methods are those of cache.Collection.
type Collection interface {
	Resource() *source.Resource
	Encoding() api.Encoding
	ListMeta() *source.ListMeta
	BookmarkTemplate() []byte
	Mux() *watchmux.Mux
	// Follow returns the latest state and a watcher of all events after it.
	Follow(f *object.Filter, notify func()) (*store.Snapshot, *watchmux.Watcher, error)
	// Backfill extends the history, so that a watch with the filter can start at rv. source.IsExpired
	// is true for the error if the upstream does not know the version either.
	Backfill(ctx context.Context, rv uint64, f *object.Filter) error
	WantShard(s *shard.Selector)
	WaitFor(ctx context.Context, rv uint64, timeout time.Duration) error
	Fresh(ctx context.Context) (uint64, error)
}

// Watches serves client watches. It is safe for concurrent use.
type Watches struct {
	renderer *form.Renderer
	writers  *writers
	panics   *contain.Panics
	ended    *prometheus.CounterVec // by reason.WatchEnd
	begun    time.Time
	// coalescing counts the open watches that coalesce, widened those of them whose delivery
	// interval is extended.
	coalescing, extended atomic.Int64
	ids                  atomic.Uint64 // the last one assigned

	mu struct {
		sync.Mutex
		open map[*stream]struct{}
		// draining makes new watches end at once.
		draining bool
	}
}

// Client describes the client of a watch and its request, in the client's own words.
type Client struct {
	User, UserAgent              string
	Namespace                    string
	LabelSelector, FieldSelector string
}

// Pace is how fast the events of a watch are delivered.
type Pace struct {
	// Coalesce is the delivery interval, 0 for none.
	Coalesce time.Duration
	// BytesPerSecond is the rate above which the interval is extended, 0 for none.
	BytesPerSecond int64
}

// waiting is the state of a coalescing watch, guarded by stream.mu.
type waiting struct {
	until time.Time // when events are delivered next; zero for at once
	paid  time.Time // until when sent bytes are paid for
	sent  int64     // bytes of the current delivery
	begun bool      // there was a delivery
	// stopped is true while a part of the held events was not sent, left while there are more
	// events than were sent, for any reason: nobody wakes the watch for those.
	stopped, left bool
	// extended is true while the limit extends the interval.
	extended bool
}

// coalesces reports whether events may wait.
func (p *Pace) coalesces() bool { return p.Coalesce > 0 || p.BytesPerSecond > 0 }
