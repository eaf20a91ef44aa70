// Package contain keeps a panic from ending the process: it ends what panicked, and
// is counted and logged. Every goroutine of the packages that serve requests and
// watches runs in it (internal/archtest sees to that), for they decode, print and
// match what clients and upstreams send, with code of others.
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

// Panics contains panics. A nil *Panics does, too, but counts none. It is safe for
// concurrent use.
type Panics struct {
	counter *prometheus.CounterVec // by place
	log     *slog.Logger
	mu      struct {
		sync.Mutex
		logged map[string]time.Time // when a panic was last logged, by place
	}
}

// places are those that the packages name.
var places = [...]string{"handler", "body", "stream", "upgrade", "done", "connection", "watch", "feed", "background"}

// logPeriod is how often a panic is logged with its stack for each place: one object
// that cannot be printed can meet thousands of watches.
const logPeriod = 10 * time.Second

// New makes a Panics that counts in r as kubeweir_panics_total; all of one registry
// share the counter. r may be nil, log is slog.Default when nil.
func New(r prometheus.Registerer, log *slog.Logger) *Panics {
	p := &Panics{log: log, counter: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_panics_total",
		Help: "Contained panics, by place. Each ended one request, watch or background task, and is a bug.",
	}, []string{"place"})}
	for _, place := range places {
		p.counter.WithLabelValues(place) // so that the first panic is a change, too
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

// Error is a panic that was contained.
type Error struct {
	Place string
	Value any
}

// Error implements error. What panicked is in the log: it may name internals, which
// are nobody's who sees the error in an answer.
func (e *Error) Error() string { return "a panic was contained: " + e.Place }

// Run calls f. If f panics the error is an *Error.
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

// Go runs f in a goroutine of its own, which ends if f panics. The group waits for
// it; nil is none.
func (p *Panics) Go(group *sync.WaitGroup, place string, f func()) {
	contained := func() { _ = p.Run(place, f) }
	if group == nil {
		go contained()
		return
	}
	group.Go(contained)
}

// Keep is Go for what has to go on as long as the process does: f runs again, a
// little later, when it has panicked.
func (p *Panics) Keep(group *sync.WaitGroup, place string, f func()) {
	p.Go(group, place, func() {
		for p.Run(place, f) != nil {
			time.Sleep(keepPause)
		}
	})
}

// Func is f, but that a panic of f is its error: for groups that run functions.
func (p *Panics) Func(place string, f func() error) func() error {
	return func() error {
		var err error
		if panicked := p.Run(place, func() { err = f() }); panicked != nil {
			return panicked
		}
		return err
	}
}

// Contain, deferred first of all, does for a goroutine what Go does for its function.
func (p *Panics) Contain(place string) {
	if value := recover(); value != nil {
		p.Recovered(place, value)
	}
}

// keepPause keeps what panics each time from taking a processor.
const keepPause = time.Second

// Recovered counts and logs a panic that the caller has recovered from; called while
// the panicking stack is still there.
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

// isDue reports whether a panic is to be logged now.
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
