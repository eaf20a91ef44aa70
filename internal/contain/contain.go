// Package contain prevents a panic from ending the process: the panicking goroutine ends, and the
// panic is counted and logged. Every goroutine of the packages that serve requests and watches runs
// in it (internal/archtest enforces that), because they decode, print and match data of clients and
// upstreams with code of other projects.
package contain

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Panics contains panics. A nil *Panics contains them, too, but does not count them. It is safe for
// concurrent use.
type Panics struct {
	counter *prometheus.CounterVec // by place
	log     *slog.Logger
	mu      struct {
		sync.Mutex
		logged map[string]time.Time // when a panic was last logged, by place
	}
}

// places are the names that callers may use.
var places = [...]string{"handler", "body", "stream", "upgrade", "done", "connection", "watch", "feed", "background"}

// logPeriod is how often a panic of each place is logged with its stack: one object that cannot be
// printed can affect thousands of watches.
const logPeriod = 10 * time.Second

// New returns a Panics that counts in r as kubeweir_panics_total. All Panics of one registry share
// the counter. r may be nil; log defaults to slog.Default.
func New(r prometheus.Registerer, log *slog.Logger) *Panics {
	p := &Panics{log: log, counter: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_panics_total",
		Help: "Contained panics, by place. Each ended one request, watch or background task, and is a bug.",
	}, []string{"place"})}
	for _, place := range places {
		p.counter.WithLabelValues(place) // so that the first panic is an increase, too
	}
	if r == nil {
		return p
	}
	var registered prometheus.AlreadyRegisteredError
	if errors.As(r.Register(p.counter), &registered) {
		p.counter = registered.ExistingCollector.(*prometheus.CounterVec)
	}
	return p
}

// Error is a contained panic.
type Error struct {
	Place string
	Value any
}

// Error implements error. It leaves out the value of the panic, which may disclose internals to
// clients. The log has it.
func (e *Error) Error() string { return "a panic was contained: " + e.Place }

// Run calls f. If f panics, it returns an *Error.
func (p *Panics) Run(place string, f func()) (err error) {
	defer func() {
		if value := recover(); value != nil {
			p.Recovered(place, value)
			err = &Error{place, value}
		}
	}()
	f()
	return nil
}

// Go runs f in a goroutine of its own, which ends if f panics. group, which may be nil, waits for
// it.
func (p *Panics) Go(group *sync.WaitGroup, place string, f func()) {
	contained := func() { _ = p.Run(place, f) }
	if group == nil {
		go contained()
		return
	}
	group.Go(contained)
}

// Keep is Go for functions that must run as long as the process: after a panic it calls f again, a
// little later.
func (p *Panics) Keep(group *sync.WaitGroup, place string, f func()) {
	p.Go(group, place, func() {
		for p.Run(place, f) != nil {
			time.Sleep(keepPause)
		}
	})
}

// Func wraps f such that a panic becomes its error, for groups that run functions.
func (p *Panics) Func(place string, f func() error) func() error {
	return func() error {
		var err error
		if panicked := p.Run(place, func() { err = f() }); panicked != nil {
			return panicked
		}
		return err
	}
}

// Contain does for a goroutine what Go does for its function. It must be deferred first.
func (p *Panics) Contain(place string) {
	if value := recover(); value != nil {
		p.Recovered(place, value)
	}
}

// keepPause prevents a function that always panics from using up a processor.
const keepPause = time.Second

// Recovered counts and logs a panic that the caller has recovered from. Call it while the panicking
// stack still exists.
func (p *Panics) Recovered(place string, value any) {
	log := slog.Default()
	if p != nil {
		p.counter.WithLabelValues(place).Inc()
		if !p.isDue(place, time.Now()) {
			return
		}
		if p.log != nil {
			log = p.log
		}
	}
	log.Error("panic contained", "place", place, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
}

// isDue reports whether to log a panic now.
func (p *Panics) isDue(place string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, ok := p.mu.logged[place]; ok && now.Sub(last) < logPeriod {
		return false
	}
	if p.mu.logged == nil {
		p.mu.logged = make(map[string]time.Time)
	}
	p.mu.logged[place] = now
	return true
}
