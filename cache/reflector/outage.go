package reflector

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/flight"
)

// Outage is what the feeds of a manager know together of the server behind their
// source: whether it answers, and which program it is.
//
//	             a feed's attempt failed, and so did a look
//	answering ----------------------------------------------> down
//	    ^                                                       |
//	    +-------- a look or an attempt of a feed succeeded -----+
//
// The end of an outage ends the pauses of all feeds, for a pause that grew while
// nobody answered says nothing about a server that does. A feed that fails while
// others do not is left to its own backoff.
type Outage struct {
	source source.Source
	log    *slog.Logger
	ctx    context.Context // the manager's
	spawn  func(func())    // runs what the manager waits for
	jitter func(n int64) int64
	asks   flight.Group[struct{}, string]

	mu struct {
		sync.Mutex
		looking bool
		began   time.Time // of the outage, zero while there is none
		ended   time.Time // when the last one was over
		// back is closed, and replaced, when an outage is over.
		back   chan struct{}
		server string // as last told, "" before
	}
}

const (
	// lookEvery is the time between looks at a server that does not answer, and
	// lookTimeout how long each may take.
	lookEvery   = 500 * time.Millisecond
	lookTimeout = 2 * time.Second
	// returnSpread is the time over which feeds come back to a server that answers
	// again, so that they do not come all at once.
	returnSpread = 250 * time.Millisecond
	// recoveryTime is how long after an outage a server may still be starting: it may
	// refuse what it will allow, and break off what it began. Until then no pause
	// is longer than recoveryDelay.
	recoveryTime  = 30 * time.Second
	recoveryDelay = time.Second
)

func NewOutage(ctx context.Context, source source.Source, spawn func(func()), jitter func(int64) int64, log *slog.Logger) *Outage {
	o := &Outage{source: source, log: log, ctx: ctx, spawn: spawn, jitter: jitter}
	o.mu.back = make(chan struct{})
	return o
}

// over is closed when the next outage, or the present one, is over.
func (o *Outage) over() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.back
}

// recovering reports whether an outage has just been over.
func (o *Outage) recovering() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.mu.ended.IsZero() && time.Since(o.mu.ended) < recoveryTime
}

// answered says that the server has answered.
func (o *Outage) answered() {
	o.mu.Lock()
	began := o.mu.began
	if !began.IsZero() {
		o.mu.began, o.mu.ended = time.Time{}, time.Now()
		close(o.mu.back)
		o.mu.back = make(chan struct{})
	}
	o.mu.Unlock()
	if !began.IsZero() {
		o.log.Info("the upstream answers again", "seconds", time.Since(began).Seconds())
	}
}

// suspect is called when an attempt of a feed failed: somebody should look.
func (o *Outage) suspect() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.mu.looking && o.ctx.Err() == nil {
		o.mu.looking = true
		o.spawn(o.look)
	}
}

// look asks the server until it answers.
func (o *Outage) look() {
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.mu.looking = false
	}()
	for {
		over := o.over()
		_, err := o.ask(o.ctx)
		switch {
		case errors.Is(err, source.ErrUnsupported):
			return // the feeds will find out
		case err == nil:
			o.answered()
			return
		}
		o.down(err)
		wait := time.NewTimer(lookEvery + time.Duration(o.jitter(int64(lookEvery/10))))
		select {
		case <-wait.C:
		case <-over:
		case <-o.ctx.Done():
		}
		wait.Stop()
		if o.ctx.Err() != nil || !o.isDown() {
			return
		}
	}
}

func (o *Outage) isDown() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.mu.began.IsZero()
}

func (o *Outage) down(err error) {
	o.mu.Lock()
	first := o.mu.began.IsZero() && o.ctx.Err() == nil
	if first {
		o.mu.began = time.Now()
	}
	o.mu.Unlock()
	if first {
		o.log.Warn("the upstream does not answer", "error", err)
	}
}

// ask asks the server once who it is; "" when that is not for us to know. One that
// has told before and now refuses is still starting.
func (o *Outage) ask(ctx context.Context) (server string, err error) {
	ctx, cancel := source.WithTimeout(ctx, o.source, lookTimeout)
	defer cancel()
	server, err = o.source.Server(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.mu.server = server
	case source.IsRejected(err) && o.mu.server == "":
		err = nil
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		err = nil
	}
	return server, err
}

// Known is the server as last told; it is asked if it never was.
func (o *Outage) Known(ctx context.Context) string {
	if server := o.Heard(); server != "" {
		return server
	}
	return o.Now(ctx)
}

// Heard is what the server said last that it is, "" if it has not.
func (o *Outage) Heard() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.server
}

// Now asks the server who it is, once for all who ask at the same time; "" when it
// does not tell.
func (o *Outage) Now(ctx context.Context) string {
	server, _, err := o.asks.Do(ctx, struct{}{}, o.ask)
	if err != nil {
		return ""
	}
	return server
}
