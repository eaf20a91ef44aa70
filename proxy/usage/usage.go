package usage

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
)

// Options are the parts of a Usage.
type Options struct {
	// Processor tells what work takes; required.
	Processor *Processor
	// Size is how many users, user agents and resources are surely kept of each pane, those
	// that cost most (default 256).
	Size int
	// Fed is how many bytes feeds have brought so far; nil for nobody who knows. Now is
	// the clock that the first pane begins by (default time.Now).
	Fed func() float64
	Now func() time.Time
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

const defaultSize = 256

// feedPrice is what a byte that a feed brings costs.
const feedPrice = 5

// Usage is who costs what of one cluster. It is safe for concurrent use; Tick has to be called
// about each second.
type Usage struct {
	opts Options

	mu   sync.Mutex // held for a moment
	open *pane      // guarded by mu, as is what it holds

	// kept is what was counted before. Its mu is taken before that of Usage.
	kept struct {
		sync.Mutex
		short, long []*pane // the newest at the end
		growing     *pane   // the long one that short ones are merged into
		fed         float64
	}

	streams struct {
		sync.Mutex
		open map[*Stream]struct{}
	}
}

// New returns a Usage of nothing yet.
func New(o Options) *Usage {
	if o.Size == 0 {
		o.Size = defaultSize
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	u := &Usage{opts: o}
	now := o.Now()
	u.open = newPane(o.Size, now)
	u.kept.growing = newPane(o.Size, now)
	u.streams.open = make(map[*Stream]struct{})
	o.Processor.settle(now)
	u.register(o.Registerer)
	return u
}

// Add counts what somebody has cost.
func (u *Usage) Add(a Asker, cost Cost) {
	a = a.bounded()
	u.opts.Processor.did(cost.Work)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open.add(&a, &cost)
}

// Tick counts what open streams have sent since, and closes the pane when its time is over.
func (u *Usage) Tick(now time.Time) {
	u.collect()
	u.kept.Lock()
	defer u.kept.Unlock()
	if fed := u.opts.Fed; fed != nil {
		total := fed()
		u.opts.Processor.did(feedPrice * (total - u.kept.fed))
		u.kept.fed = total
	}
	u.mu.Lock()
	done := u.open
	if epochOf(now) <= epochOf(done.from) {
		u.mu.Unlock()
		return
	}
	u.open = newPane(u.opts.Size, now)
	u.mu.Unlock()

	done.to = now
	done.scale(u.opts.Processor.settle(now))
	u.keep(done)
}

// keep takes a pane that is closed. The caller holds kept.
func (u *Usage) keep(done *pane) {
	k := &u.kept
	k.short = append(k.short, done)
	for len(k.short) > 0 && done.to.Sub(k.short[0].from) > shortPanes*shortPane+shortPane/2 {
		k.short = k.short[1:]
	}
	k.growing.merge(done)
	if k.growing.to = done.to; k.growing.to.Sub(k.growing.from) >= longPane {
		k.long = append(k.long, k.growing)
		k.growing = newPane(u.opts.Size, done.to)
	}
	for len(k.long) > 0 && done.to.Sub(k.long[0].from) > (longPanes+1)*longPane {
		k.long = k.long[1:]
	}
}

// panes are all that are kept. The caller holds kept.
func (u *Usage) panes() []*pane {
	all := append([]*pane{u.kept.growing}, u.kept.short...)
	return append(all, u.kept.long...)
}

// Sizes of what a pane holds, for the metric: an entry of a map with its key and cost.
const entryBytes = 160

// bytes is what all of it takes, about.
func (u *Usage) bytes() (n int) {
	u.kept.Lock()
	defer u.kept.Unlock()
	all := u.panes()
	u.mu.Lock()
	n = entryBytes*u.open.entries() + u.open.names()
	u.mu.Unlock()
	for _, p := range all {
		n += entryBytes*p.entries() + p.names()
	}
	return n
}

func (u *Usage) register(registerer prometheus.Registerer) {
	if registerer == nil {
		return
	}
	registerer.MustRegister(gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_usage_bytes",
		Help: "Bytes of memory that are taken by what is known of who costs what: users, user agents and resources over the last minute and hour. However many there are, it is about 10 MB at most.",
	}, func() float64 { return float64(u.bytes()) }))
}
