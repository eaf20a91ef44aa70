package audit

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/contain"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
)

// Destination is where events go.
type Destination struct {
	// Path is the file that events are appended to, "-" for Options.Stdout, or "" for none:
	// nothing is recorded then. The file is made with mode 0600.
	Path string
	// MaxSize is the size in bytes above which the file is put aside and a new one
	// begun; 0 lets it grow.
	MaxSize int64
	// MaxBackups is how many files put aside are kept, as Path.1 (the youngest),
	// Path.2 and so on.
	MaxBackups int
}

// Options say where events go.
type Options struct {
	Destination
	// Stdout is what "-" stands for, os.Stdout by default.
	Stdout io.Writer
	// QueueEvents and QueueBytes bound the events of reads that wait for the writer
	// (defaults: 8,192 events, 16 MiB); what comes above is dropped. Those of what may
	// change something wait in a queue of their own, of queueKept events.
	QueueEvents int
	QueueBytes  int64
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
	// Logger is told when events cannot be written. Default: discarded.
	Logger *slog.Logger
}

// Log writes events. All methods may be called on a nil Log, which records
// nothing and costs nothing, and are safe for concurrent use.
type Log struct {
	opts    Options
	metrics *logMetrics
	panics  *contain.Panics

	queue  chan record
	queued atomic.Int64 // bytes in queue
	kept   chan record  // what must not be dropped
	reopen chan struct{}
	// next has the change that is to be made; 1 at most.
	next chan *Change
	// enabled is set while there is a sink. to is the destination, for callers of Prepare.
	enabled atomic.Bool
	to      Destination

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	done      chan struct{} // closed when the writer has ended
	err       error         // of closing the file; written before done is closed
}

// queueKept is how many events that must not be dropped wait for the writer, before
// those who record more wait themselves. None is much larger than a request's head.
const queueKept = 256

// batchBytes is about how much is written at once.
const batchBytes = 64 << 10

// complainEvery is how often a log that cannot be written is complained of.
const complainEvery = time.Minute

// Open opens the file, which must be possible, and starts the writer, which
// Close ends.
func Open(opts Options) (*Log, error) {
	if opts.Stdout == nil {
		opts.Stdout = os.Stdout
	}
	if opts.QueueEvents <= 0 {
		opts.QueueEvents = 8192
	}
	if opts.QueueBytes <= 0 {
		opts.QueueBytes = 16 << 20
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	to, err := opts.open(opts.Destination)
	if err != nil {
		return nil, err
	}
	l := &Log{
		opts:    opts,
		queue:   make(chan record, opts.QueueEvents),
		kept:    make(chan record, queueKept),
		reopen:  make(chan struct{}, 1),
		next:    make(chan *Change, 1),
		to:      opts.Destination,
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	l.metrics = newLogMetrics(opts.Registerer, func() float64 { return float64(len(l.queue) + len(l.kept)) })
	l.enabled.Store(opts.Path != "")
	l.panics = contain.New(opts.Registerer, opts.Logger)
	l.panics.Go(nil, "background", func() { l.run(to) })
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
	f := &file{path: d.Path, maxSize: d.MaxSize, maxBackups: d.MaxBackups}
	return f, f.open()
}

// Change is another destination that is open already.
type Change struct {
	log *Log
	to  Destination
	// sink is nil if the destination has the same path as the present one.
	sink sink
	done chan struct{} // closed when the writer uses sink
}

// Prepare opens another destination, without using it yet: the caller calls Apply or Discard.
// Calls must not overlap.
func (l *Log) Prepare(to Destination) (*Change, error) {
	c := &Change{log: l, to: to, done: make(chan struct{})}
	if to.Path == l.to.Path {
		return c, nil
	}
	var err error
	c.sink, err = l.opts.open(to)
	return c, err
}

// changeWait bounds how long Apply waits for a disk that does not answer.
const changeWait = 5 * time.Second

// Apply has events written to the destination. Those that were recorded before go to the old one,
// which Apply waits for.
func (c *Change) Apply() {
	l := c.log
	if c.to == l.to {
		return
	}
	if c.to.Path == "" {
		l.enabled.Store(false)
	}
	select {
	case unused := <-l.next: // the writer waits for its disk since then
		unused.Discard()
	default:
	}
	l.next <- c
	l.to = c.to
	late := time.NewTimer(changeWait)
	defer late.Stop()
	select {
	case <-c.done:
	case <-l.closing:
	case <-late.C:
	}
	l.enabled.Store(c.to.Path != "")
}

// Discard closes the destination.
func (c *Change) Discard() {
	if c.sink != nil {
		_ = c.sink.close()
	}
}

// Enabled reports whether Record does anything, for callers that would have to
// gather an Event first.
func (l *Log) Enabled() bool { return l != nil && l.enabled.Load() }

// Record takes an event down. One that is to be kept waits for room in the queue, as
// with kube-apiserver's own log; another that there is no room for is dropped and
// counted.
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
	if e.Keep {
		select {
		case l.kept <- r:
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

// Reopen has the writer open the file anew, after another program moved it away.
func (l *Log) Reopen() {
	if l == nil {
		return
	}
	select {
	case l.reopen <- struct{}{}:
	default: // it is going to already
	}
}

// Close writes what is queued and ends the writer. Events recorded later are
// dropped. It returns early when ctx is done; the writer then ends on its own.
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

// run is the writer. It ends after Close, when the queues are empty.
func (l *Log) run(to sink) {
	defer close(l.done)
	w := batchWriter{log: l, to: to}
	for l.panics.Run("background", func() { l.write(&w) }) != nil {
		// What could not be written is gone; the rest can.
	}
}

// write is run until an event makes it panic.
func (l *Log) write(w *batchWriter) {
	for {
		select {
		case r := <-l.kept:
			w.writeAll(r)
		case r := <-l.queue:
			l.queued.Add(-r.size)
			w.writeAll(r)
		case <-l.reopen:
			if err := w.to.reopen(); err != nil {
				w.complain("cannot reopen the audit log", err)
			}
		case c := <-l.next:
			if r, ok := l.nextRecord(); ok {
				w.writeAll(r)
			}
			w.change(c)
		case <-l.closing:
			if r, ok := l.nextRecord(); ok {
				w.writeAll(r)
				continue
			}
			select {
			case c := <-l.next:
				c.Discard()
			default:
			}
			l.err = w.to.close()
			return
		}
	}
}

// nextRecord returns a queued event, if there is one: those that are kept first, because
// somebody may wait to be rid of one.
func (l *Log) nextRecord() (record, bool) {
	select {
	case r := <-l.kept:
		return r, true
	default:
	}
	select {
	case r := <-l.queue:
		l.queued.Add(-r.size)
		return r, true
	default:
		return record{}, false
	}
}

// batchWriter encodes and writes, in the writer's goroutine.
type batchWriter struct {
	log        *Log
	to         sink
	buf        []byte
	complained time.Time
}

// writeAll writes first and all that is queued, batchBytes at a time.
func (w *batchWriter) writeAll(first record) {
	r, more := first, true
	for more {
		events := 0
		w.buf = w.buf[:0]
		for more && len(w.buf) < batchBytes {
			w.buf = appendEvent(w.buf, &r)
			events++
			r, more = w.log.nextRecord()
		}
		written, err := w.to.write(w.buf)
		if written {
			w.log.metrics.written.Add(float64(events))
		} else {
			w.log.metrics.failed.Add(float64(events))
		}
		if err != nil {
			w.complain("trouble with the audit log", err, "lost", !written)
		}
	}
	if cap(w.buf) > 4*batchBytes {
		w.buf = nil
	}
}

// change makes a change of the destination.
func (w *batchWriter) change(c *Change) {
	defer close(c.done)
	if c.sink == nil {
		w.to.limit(c.to.MaxSize, c.to.MaxBackups)
		return
	}
	if err := w.to.close(); err != nil {
		w.complain("cannot close the audit log", err)
	}
	w.to = c.sink
}

func (w *batchWriter) complain(message string, err error, more ...any) {
	if now := time.Now(); w.complained.IsZero() || now.Sub(w.complained) >= complainEvery {
		w.complained = now
		w.log.opts.Logger.Error(message, append(more, "path", w.to.name(), "error", err)...)
	}
}

type logMetrics struct{ written, dropped, failed prometheus.Counter }

func newLogMetrics(reg prometheus.Registerer, queued func() float64) *logMetrics {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_audit_events_total",
		Help: "Audit events by what became of them: written, dropped for want of room in the queue, failed to be written.",
	}, []string{"result"})
	if reg != nil {
		reg.MustRegister(events, gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_audit_queue_events",
			Help: "Audit events that wait to be written.",
		}, queued))
	}
	return &logMetrics{
		written: events.WithLabelValues("written"),
		dropped: events.WithLabelValues("dropped"),
		failed:  events.WithLabelValues("failed"),
	}
}
