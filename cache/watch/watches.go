package watch

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/form"
	"github.com/kubeweir/kubeweir/cache/freshness"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/watchmux"
)

// New returns a Watches that shares the renderer, and what it caches, with reader. registerer may
// be nil.
func New(reader *read.Reader, registerer prometheus.Registerer) *Watches {
	panics := contain.New(registerer, nil)
	w := &Watches{renderer: reader.Renderer, writers: newWriters(panics), panics: panics, begun: time.Now()}
	w.mu.open = make(map[*stream]struct{})
	w.ended = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_watches_ended_total",
		Help: "Client watches served from the cache that ended, by reason (docs/reasons.md).",
	}, []string{"reason"})
	for _, why := range reason.WatchEnds() {
		w.ended.WithLabelValues(why.String()) // so that the first one is a change, too
	}
	if registerer != nil {
		registerer.MustRegister(w.ended, gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_watches_open",
			Help: "Open client watches served from the cache.",
		}, func() float64 { return float64(w.Open()) }), gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_watches_coalescing",
			Help: "Client watches served from the cache whose events are coalesced, by a rule or at the client's request.",
		}, func() float64 { return float64(w.coalescing.Load()) }), gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_watches_widened",
			Help: "Client watches whose delivery interval is longer than coalesce because they would exceed watchBytesPerSecond.",
		}, func() float64 { return float64(w.extended.Load()) }))
	}
	return w
}

// Open returns the number of open watches.
func (ws *Watches) Open() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.mu.open)
}

// Watch serves a watch. Errors of the watch itself, such as an expired version, are sent as ERROR
// events, as kube-apiserver does. The returned error is for the caller to forward or to respond
// with. end ends the watch soon, after the events that it already has; it is safe for concurrent
// use.
func (ws *Watches) Watch(ctx context.Context, c Collection, req *Request) (resp *api.Response, end func(reason.WatchEnd), err error) {
	from, err := api.ParseResourceVersion(req.Options.ResourceVersion)
	if err != nil {
		return nil, nil, read.Forward(reason.InvalidVersion, err)
	}
	body, ok := ws.renderer.Watch(form.Collection{Resource: c.Resource().Form(), Stored: c.Encoding(), Mux: c.Mux()}, req.Rep, req.Message)
	if !ok || req.Filter != nil && req.Filter.Namespace != "" && !c.Resource().Namespaced {
		return nil, nil, read.Forward(reason.Unservable, nil)
	}
	s := &stream{owner: ws, c: c, req: req, body: body, from: from, id: ws.ids.Add(1), began: time.Now()}
	s.deadline = s.began.Add(watchDuration(req.Options.TimeoutSeconds))
	initial, err := s.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	if s.watcher != nil && req.Pace.coalesces() {
		s.watcher.Coalesce(req.Pace.BytesPerSecond > 0)
	}
	s.pickInitial(ctx, initial)
	// After a panic the initial events are sent uncompressed.
	_ = s.owner.panics.Run("watch", func() { s.compressInitial(ctx) })
	return &api.Response{Status: 200, Header: s.body.Header(), Stream: s}, s.end, nil
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

// open determines where the watch starts. It returns the state whose objects are sent first, nil
// for none.
func (s *stream) open(ctx context.Context) (initial *store.Snapshot, err error) {
	switch {
	case s.req.Options.SendInitialEvents:
		if err := s.reach(ctx, max(s.from, s.req.MostRecent)); err != nil {
			return nil, err
		}
		initial, err = s.follow()
		s.markEnd = initial != nil && s.req.Options.AllowWatchBookmarks
	case s.from > 0:
		err = s.resume(ctx)
	default:
		initial, err = s.follow()
		if !s.req.Options.UnmarkedStart {
			initial = nil
		}
	}
	return initial, err
}

// resume starts the watch at its version, and extends a history that does not reach back to it. It
// returns nil if the watch is to end with an event.
func (s *stream) resume(ctx context.Context) (err error) {
	s.watcher, err = s.c.Mux().Watch(s.from, s.req.Filter, s.kick)
	if errors.Is(err, watchmux.ErrExpired) {
		switch failed := s.c.Backfill(ctx, s.from, s.req.Filter); {
		case failed == nil:
			s.watcher, err = s.c.Mux().Watch(s.from, s.req.Filter, s.kick)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case source.IsExpired(failed):
			err = failed // the upstream would say the same
		}
	}
	if err != nil {
		return s.failed(err)
	}
	return nil
}

// reach returns when the collection holds rv, which may be the version of another resource. An idle
// resource learns such versions once a minute at best, so reach requests the version from the
// upstream. It is also up to the upstream to wait for a version that nobody holds yet, or to reject
// it.
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

// Drain ends all open watches, evenly spread over the given time, and new ones at once. It returns
// when it has ended all of them. After the end of ctx it no longer spreads them.
func (ws *Watches) Drain(ctx context.Context, over time.Duration) {
	ws.mu.Lock()
	ws.mu.draining = true
	ws.mu.Unlock()
	open := ws.streams()
	pause := over / time.Duration(max(1, len(open)))
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

// OpenWatch is the state of a watch at one moment.
type OpenWatch struct {
	// ID is unique among all watches of a Watches.
	ID uint64
	Client
	Resource schema.GroupVersionResource
	Rep      api.Representation
	// Began is when the watch was opened, Events how many events it was sent since.
	Began  time.Time
	Events uint64

	s *stream
}

// Lagging reports whether the watch has left events unread for more than a second.
func (o *OpenWatch) Lagging() bool { return o.s != nil && o.s.watcher != nil && o.s.watcher.Lagging() }

// List returns all open watches in no particular order.
func (ws *Watches) List() []OpenWatch {
	streams := ws.streams()
	list := make([]OpenWatch, len(streams))
	for i, s := range streams {
		list[i] = s.asOpen()
	}
	return list
}

// End ends the watches for which which returns true, after the events that they already have, and
// returns how many.
func (ws *Watches) End(why reason.WatchEnd, which func(*OpenWatch) bool) (n int) {
	for _, s := range ws.streams() {
		if open := s.asOpen(); which(&open) {
			s.end(why)
			n++
		}
	}
	return n
}

// streams returns the open streams.
func (ws *Watches) streams() []*stream {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.Collect(maps.Keys(ws.mu.open))
}

// asOpen reads only fields that do not change after Start, and counters.
func (s *stream) asOpen() OpenWatch {
	return OpenWatch{
		ID: s.id, Client: s.req.Client, Resource: s.c.Resource().GroupVersionResource, Rep: s.req.Rep,
		Began: s.began, Events: s.events.Load(), s: s,
	}
}
