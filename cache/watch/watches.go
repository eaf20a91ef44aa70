package watch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form"
	"github.com/kubeweir/kubeweir/cache/freshness"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/contain"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/reason"
	"github.com/kubeweir/kubeweir/shard"
	"github.com/kubeweir/kubeweir/watchmux"
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
	// ForwardExpired makes Watch return ErrForward instead of sending an ERROR event if the
	// requested version is older than the history. The upstream may still know it.
	ForwardExpired bool
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

// The duration of watches and the period of bookmarks are those of kube-apiserver
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
	ListKind() (kind, apiVersion string)
	BookmarkTemplate() []byte
	Mux() *watchmux.Mux
	// Follow returns the latest state and a watcher of all events after it.
	Follow(f *object.Filter, notify func()) (*store.Snapshot, *watchmux.Watcher, error)
	WantShard(s *shard.Selector)
	WaitFor(ctx context.Context, rv uint64, timeout time.Duration) error
	Fresh(ctx context.Context) (uint64, error)
}

// Watches serves client watches. It is safe for concurrent use.
type Watches struct {
	renderer *form.Renderer
	writers  *writers
	panics   *contain.Panics
	ended    []prometheus.Counter // by reason.WatchEnd
	begun    time.Time
	// coalescing counts the open watches that coalesce, widened those of them whose delivery
	// interval is extended.
	coalescing, widened atomic.Int64
	ids                 atomic.Uint64 // the last one assigned

	mu struct {
		sync.Mutex
		open map[*stream]struct{}
		// draining makes new watches end at once.
		draining bool
	}
}

// New returns a Watches that shares the renderer, and what it caches, with reader. registerer may
// be nil.
func New(reader *read.Reader, registerer prometheus.Registerer) *Watches {
	panics := contain.New(registerer, nil)
	w := &Watches{renderer: reader.Renderer(), writers: newWriters(panics), panics: panics, begun: time.Now()}
	w.mu.open = make(map[*stream]struct{})
	ended := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_watches_ended_total",
		Help: "Client watches served from the cache that ended, by reason (docs/reasons.md).",
	}, []string{"reason"})
	w.ended = make([]prometheus.Counter, len(reason.WatchEnds())+1)
	for _, why := range reason.WatchEnds() {
		w.ended[why] = ended.WithLabelValues(why.String())
	}
	if registerer != nil {
		registerer.MustRegister(ended, gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_watches_open",
			Help: "Client watches served from the cache now.",
		}, func() float64 { return float64(w.Open()) }), gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_watches_coalescing",
			Help: "Client watches served from the cache that coalesce events, by a rule or because their client asked for it.",
		}, func() float64 { return float64(w.coalescing.Load()) }), gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_watches_widened",
			Help: "Client watches whose events wait longer than coalesce says, because they would bring more than watchBytesPerSecond.",
		}, func() float64 { return float64(w.widened.Load()) }))
	}
	return w
}

// Open returns the number of open watches.
func (ws *Watches) Open() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.mu.open)
}

// Watch is an open watch. Its methods are safe for concurrent use.
type Watch struct{ s *stream }

// End ends the watch soon, after the events that it already has.
func (w Watch) End(why reason.WatchEnd) { w.s.end(why) }

// Watch answers a watch. Errors of the watch itself, such as an expired version, are sent as ERROR
// events, as kube-apiserver does. The returned error is for the caller to forward or to respond
// with.
func (ws *Watches) Watch(ctx context.Context, c Collection, req *Request) (*api.Response, Watch, error) {
	from, err := api.ParseResourceVersion(req.Options.ResourceVersion)
	if err != nil {
		return nil, Watch{}, read.Forward(reason.InvalidVersion, err)
	}
	body, ok := ws.renderer.Watch(form.Collection{Resource: c.Resource().Form(), Stored: c.Encoding(), Mux: c.Mux()}, req.Rep, req.Message)
	if !ok || req.Filter != nil && req.Filter.Namespace != "" && !c.Resource().Namespaced {
		return nil, Watch{}, read.Forward(reason.Unservable, nil)
	}
	s := &stream{owner: ws, c: c, req: req, body: body, from: from, id: ws.ids.Add(1), began: time.Now()}
	s.deadline = s.began.Add(watchDuration(req.Options.TimeoutSeconds))
	if err := s.open(ctx); err != nil {
		return nil, Watch{}, err
	}
	if s.watcher != nil && req.Pace.coalesces() {
		s.watcher.Coalesce(req.Pace.BytesPerSecond > 0)
	}
	s.pickPart(ctx)
	// After a panic the initial events are sent uncompressed.
	_ = s.owner.panics.Run("watch", func() { s.compressInitial(ctx) })
	return &api.Response{Status: 200, Header: s.body.Header(), Stream: s}, Watch{s}, nil
}

// maxWatchDuration bounds the client's timeout, so that deadlines do not overflow.
const maxWatchDuration = 365 * 24 * time.Hour

// watchDuration returns how long a watch lasts: the requested time, or a random time of 30 to 60
// minutes, so that watches that start together do not end together. It is zero for a negative
// number of seconds and, as in kube-apiserver, for one that overflows.
func watchDuration(timeoutSeconds int64) time.Duration {
	d := time.Duration(timeoutSeconds) * time.Second
	if d == 0 {
		return minWatchDuration + rand.N(minWatchDuration)
	}
	return min(max(d, 0), maxWatchDuration)
}

// open determines where the watch starts.
func (s *stream) open(ctx context.Context) error {
	if !s.req.Options.SendInitialEvents {
		if s.from == 0 {
			view, err := s.follow()
			if s.req.Options.UnmarkedStart {
				s.initial = view
			}
			return err
		}
		w, err := s.c.Mux().Watch(s.from, s.req.Filter, s.kick)
		if err != nil {
			return s.failed(err)
		}
		s.watcher = w
		return nil
	}
	required := max(s.from, s.req.MostRecent)
	if err := s.reach(ctx, required); err != nil {
		return err
	}
	view, err := s.follow()
	if err != nil || view == nil {
		return err
	}
	s.initial = view
	s.markEnd = s.req.Options.AllowWatchBookmarks
	return nil
}

// reach returns when the collection holds rv, which may be the version of another resource. An idle
// resource learns such versions once a minute at best, so the upstream is asked. It is also up to
// the upstream to wait for a version that nobody holds yet, or to reject it.
func (s *stream) reach(ctx context.Context, rv uint64) error {
	err := s.c.WaitFor(ctx, rv, freshness.HeadStart)
	if !store.IsTooLarge(err) {
		return err
	}
	if _, err := s.c.Fresh(ctx); err != nil {
		return read.Forward(reason.VersionAhead, err)
	}
	if err := s.c.WaitFor(ctx, rv, 0); err != nil {
		return read.Forward(reason.VersionAhead, err)
	}
	return nil
}

// follow starts the watch at the collection's latest state and returns that. It returns nil if the
// watch is to end with an event.
func (s *stream) follow() (*store.Snapshot, error) {
	view, w, err := s.c.Follow(s.req.Filter, s.kick)
	if err != nil {
		return nil, s.failed(err)
	}
	s.watcher, s.from = w, view.RV()
	return view, nil
}

// failed turns an error of the multiplexer into the end of the watch. It returns an error only
// before Start, for the caller of Watch.
func (s *stream) failed(err error) error {
	var expired *watchmux.ExpiredError
	switch {
	case errors.As(err, &expired) && s.w == nil && s.req.ForwardExpired:
		return read.Forward(reason.History, err)
	case errors.As(err, &expired):
		why := reason.WatchExpired
		if s.watcher != nil {
			why = reason.WatchSlow
		}
		s.fail(api.NewExpiredWatch(s.from, expired.Oldest), why)
	case errors.Is(err, store.ErrRewound):
		s.fail(api.NewExpiredWatch(s.from, 0), reason.WatchRewound)
	case errors.Is(err, store.ErrDiffers):
		s.fail(api.NewExpiredWatch(s.from, 0), reason.WatchDiffers)
	default:
		// The collection stopped. kube-apiserver ends watches without an error then, too, and
		// clients start new ones.
		s.fail(nil, whyStopped(err))
	}
	return nil
}

// whyStopped returns why a collection that was closed with err ends its watches.
func whyStopped(err error) reason.WatchEnd {
	var dropped *store.DroppedError
	switch {
	case errors.As(err, &dropped):
		return reason.WatchRedefined
	case errors.Is(err, store.ErrManagerClosed), errors.Is(err, store.ErrIdle):
		return reason.WatchStopped
	}
	return reason.WatchFeedLost
}

// Drain ends all open watches, evenly spread over the given time, and new ones at once. It returns
// when all of them have been told to end. After the end of ctx it no longer spreads them.
func (ws *Watches) Drain(ctx context.Context, over time.Duration) {
	ws.mu.Lock()
	ws.mu.draining = true
	open := make([]*stream, 0, len(ws.mu.open))
	for s := range ws.mu.open {
		open = append(open, s)
	}
	ws.mu.Unlock()
	if len(open) == 0 {
		return
	}
	pause := over / time.Duration(len(open))
	for _, s := range open {
		s.end(reason.WatchDraining)
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				pause = 0
			}
		}
	}
}

func (ws *Watches) add(s *stream) {
	ws.mu.Lock()
	ws.mu.open[s] = struct{}{}
	draining := ws.mu.draining
	ws.mu.Unlock()
	if draining {
		s.end(reason.WatchDraining)
	}
}

func (ws *Watches) remove(s *stream) {
	ws.mu.Lock()
	delete(ws.mu.open, s)
	ws.mu.Unlock()
}
