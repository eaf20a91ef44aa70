package usage

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
)

// Options configure a Usage.
type Options struct {
	// Size is how many users, user agents and resources each pane holds at least, those with the
	// largest costs (default 256).
	Size int
	// Now is the clock by which the first pane begins (default time.Now).
	Now func() time.Time
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

const (
	defaultSize = 256
	// entryBytes is about the size of an entry of a pane, with its name.
	entryBytes = 224
)

// Usage accounts for the requests to one cluster. It is safe for concurrent use. Tick must be called
// about each second.
type Usage struct {
	opts Options

	mu   sync.Mutex // held briefly
	open *pane      // guarded by mu, with what it holds

	// closed are the panes before. Its mutex is locked before mu.
	closed struct {
		sync.Mutex
		short, long []*pane // the newest at the end
		growing     *pane   // the long one that short ones are merged into
	}

	streams struct {
		sync.Mutex
		open map[*Stream]struct{}
	}
}

// New returns an empty Usage.
func New(o Options) *Usage {
	o.Size = cmp.Or(o.Size, defaultSize)
	if o.Now == nil {
		o.Now = time.Now
	}
	u := &Usage{opts: o}
	now := o.Now()
	u.open = newPane(o.Size, now)
	u.closed.growing = newPane(o.Size, now)
	u.streams.open = make(map[*Stream]struct{})
	gaugefunc.Register(o.Registerer, "kubeweir_usage_bytes",
		"Bytes of memory for the usage by user, user agent and resource over the last minute and hour; about 10 MB at most.", u.bytes)
	return u
}

// Add accounts for a cost of a client.
func (u *Usage) Add(c Client, cost Cost) {
	c = c.bounded()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open.add(&c, &cost)
}

// Tick accounts for what open streams have sent since the last call, and closes the open pane when
// its time is over.
func (u *Usage) Tick(now time.Time) {
	u.collect()
	u.closed.Lock()
	defer u.closed.Unlock()
	u.mu.Lock()
	done := u.open
	if !now.Truncate(shortPane).After(done.from) {
		u.mu.Unlock()
		return
	}
	u.open = newPane(u.opts.Size, now)
	u.mu.Unlock()

	done.to = now
	u.keepLocked(done)
}

// keepLocked keeps a pane that is closed. The caller holds closed.
func (u *Usage) keepLocked(done *pane) {
	c := &u.closed
	c.short = append(c.short, done)
	for len(c.short) > 0 && done.to.Sub(c.short[0].from) > shortPanes*shortPane+shortPane/2 {
		c.short = c.short[1:]
	}
	c.growing.merge(done)
	if c.growing.to = done.to; c.growing.to.Sub(c.growing.from) >= longPane {
		c.long = append(c.long, c.growing)
		c.growing = newPane(u.opts.Size, done.to)
	}
	for len(c.long) > 0 && done.to.Sub(c.long[0].from) > (longPanes+1)*longPane {
		c.long = c.long[1:]
	}
}

// bytes returns about how much memory all panes take.
func (u *Usage) bytes() int {
	u.closed.Lock()
	defer u.closed.Unlock()
	u.mu.Lock()
	n := u.open.entries()
	u.mu.Unlock()
	for _, p := range slices.Concat(u.closed.short, u.closed.long, []*pane{u.closed.growing}) {
		n += p.entries()
	}
	return entryBytes * n
}
