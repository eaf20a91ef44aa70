package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
)

// Options configure a Log.
type Options struct {
	Destination
	// Stdout is what "-" stands for (default os.Stdout).
	Stdout io.Writer
	// QueueEvents and QueueBytes limit the events of reads that wait for the writer (default 8,192
	// events, 16 MiB); further ones are dropped. Events of requests that may change something have a
	// queue of their own, of requiredEvents.
	QueueEvents int
	QueueBytes  int64
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
	// Logger receives write errors. Default: discarded.
	Logger *slog.Logger
}

// Log writes events. All methods are safe for concurrent use and may be called on a nil Log, which
// records nothing.
type Log struct {
	opts    Options
	metrics *metrics
	panics  *contain.Panics

	queue    chan record
	queued   atomic.Int64 // bytes in queue
	required chan record  // events that must not be dropped
	reopen   chan struct{}

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	done      chan struct{} // closed when the writer has ended
	err       error         // of closing the file; written before done is closed
}

const (
	// requiredEvents is how many events that must not be dropped wait for the writer before callers that
	// record more wait themselves. None is much larger than a request's header.
	requiredEvents = 256
	// batchBytes is about how much is written at once.
	batchBytes = 64 << 10
	// logInterval is how often write errors are logged at most.
	logInterval = time.Minute
)

// Open opens the file, which must be possible, and starts the writer, which Close ends.
func Open(opts Options) (*Log, error) {
	if opts.Stdout == nil {
		opts.Stdout = os.Stdout
	}
	opts.QueueEvents = cmp.Or(opts.QueueEvents, 8192)
	opts.QueueBytes = cmp.Or(opts.QueueBytes, 16<<20)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	to, err := opts.open(opts.Destination)
	if err != nil {
		return nil, err
	}
	l := &Log{
		opts:     opts,
		panics:   contain.New(opts.Registerer, opts.Logger),
		queue:    make(chan record, opts.QueueEvents),
		required: make(chan record, requiredEvents),
		reopen:   make(chan struct{}, 1),
		closing:  make(chan struct{}),
		done:     make(chan struct{}),
	}
	l.metrics = newMetrics(opts.Registerer, func() int { return len(l.queue) + len(l.required) })
	w := &writer{Log: l, to: to, errors: rate.Sometimes{Interval: logInterval}}
	l.panics.Go(nil, "background", w.run)
	return l, nil
}

// open opens a destination.
func (o *Options) open(d Destination) (sink, error) {
	switch d.Path {
	case "":
		return &stream{to: io.Discard}, nil
	case "-":
		return &stream{to: o.Stdout}, nil
	}
	f := &file{Destination: d}
	return f, f.open()
}

// Enabled reports whether Record does anything, for callers that would have to collect an Event
// first.
func (l *Log) Enabled() bool { return l != nil && l.opts.Path != "" }

// Record records an event. If the event must be kept and the queue is full it waits, as
// kube-apiserver's own log does; another event is dropped and counted.
func (l *Log) Record(e *Event) {
	if !l.Enabled() {
		return
	}
	select {
	case <-l.closing:
		l.metrics.dropped.Inc()
		return
	default:
	}
	r := newRecord(e)
	if e.Required {
		select {
		case l.required <- r:
		case <-l.closing:
			l.metrics.dropped.Inc()
		}
		return
	}
	if l.queued.Add(r.size) <= l.opts.QueueBytes {
		select {
		case l.queue <- r:
			return
		default:
		}
	}
	l.queued.Add(-r.size)
	l.metrics.dropped.Inc()
}

// Reopen makes the writer open the file again, after another program moved it away.
func (l *Log) Reopen() {
	if l == nil {
		return
	}
	select {
	case l.reopen <- struct{}{}:
	default: // it is going to already
	}
}

// Close writes what is queued and ends the writer. Later events are dropped. It returns early when
// ctx is done; the writer then ends on its own.
func (l *Log) Close(ctx context.Context) error {
	if l == nil {
		return nil
	}
	l.closeOnce.Do(func() { close(l.closing) })
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writer encodes and writes events in a goroutine of its own.
type writer struct {
	*Log
	to     sink
	buf    bytes.Buffer
	errors rate.Sometimes
}

// run ends after Close, when the queues are empty.
func (w *writer) run() {
	defer close(w.done)
	for w.panics.Run("background", w.loop) != nil {
		// The event that panicked is lost, the others are not.
	}
}

func (w *writer) loop() {
	for {
		select {
		case r := <-w.required:
			w.writeAll(r)
		case r := <-w.queue:
			w.queued.Add(-r.size)
			w.writeAll(r)
		case <-w.reopen:
			if err := w.to.reopen(); err != nil {
				w.logError("reopening the audit log failed", err)
			}
		case <-w.closing:
			if r, ok := w.nextRecord(); ok {
				w.writeAll(r)
				continue
			}
			w.err = w.to.close()
			return
		}
	}
}

// nextRecord returns a queued event, if there is one: first those that must be kept, because a
// caller may wait for room.
func (w *writer) nextRecord() (record, bool) {
	select {
	case r := <-w.required:
		return r, true
	default:
	}
	select {
	case r := <-w.queue:
		w.queued.Add(-r.size)
		return r, true
	default:
		return record{}, false
	}
}

// writeAll writes first and all that is queued, about batchBytes at a time.
func (w *writer) writeAll(first record) {
	r, more := first, true
	for more {
		events := 0.0
		w.buf.Reset()
		encoder := json.NewEncoder(&w.buf)
		encoder.SetEscapeHTML(false)
		for more && w.buf.Len() < batchBytes {
			_ = encoder.Encode(r.event()) // strings, numbers and times: it does not fail
			events++
			r, more = w.nextRecord()
		}
		written, err := w.to.write(w.buf.Bytes())
		if written {
			w.metrics.written.Add(events)
		} else {
			w.metrics.failed.Add(events)
		}
		if err != nil {
			w.logError("writing the audit log failed", err, "lost", !written)
		}
	}
	if w.buf.Cap() > 4*batchBytes {
		w.buf = bytes.Buffer{}
	}
}

func (w *writer) logError(message string, err error, more ...any) {
	w.errors.Do(func() { w.opts.Logger.Error(message, append(more, "path", w.opts.Path, "error", err)...) })
}

type metrics struct{ written, dropped, failed prometheus.Counter }

func newMetrics(reg prometheus.Registerer, queued func() int) *metrics {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_audit_events_total",
		Help: "Audit events by result: written, dropped (the queue was full), failed (the write failed).",
	}, []string{"result"})
	if reg != nil {
		reg.MustRegister(events)
	}
	gaugefunc.Register(reg, "kubeweir_audit_queue_events", "Audit events waiting to be written.", queued)
	return &metrics{
		written: events.WithLabelValues("written"),
		dropped: events.WithLabelValues("dropped"),
		failed:  events.WithLabelValues("failed"),
	}
}
