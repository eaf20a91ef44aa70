package audit

import (
	"cmp"
	"log/slog"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	"k8s.io/apiserver/plugin/pkg/audit/truncate"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
)

// The modes of a backend. All but ModeQueue are kube-apiserver's.
const (
	// ModeQueue delivers events in the background. Requests other than reads wait for room in the
	// queue; events of reads that do not fit are dropped.
	ModeQueue = "queue"
	// ModeBatch delivers events in the background, in batches. Events that do not fit are dropped.
	ModeBatch = "batch"
	// ModeBlocking lets each request wait for the delivery of its events.
	ModeBlocking = "blocking"
	// ModeBlockingStrict is ModeBlocking, and rejects requests whose first event fails.
	ModeBlockingStrict = "blocking-strict"
)

// Delivery is how events get to a backend.
type Delivery struct {
	// Mode is one of the modes. Default: ModeQueue.
	Mode string
	// Batch configures the queue of ModeBatch and ModeQueue. Default of BufferSize: 10,000 events, of
	// MaxBatchSize: one event.
	Batch buffered.BatchConfig
	// Truncate removes objects from events above a size, and drops events that are still too large; nil
	// for neither.
	Truncate *truncate.Config
	// QueueBytes limits the size of queued events. Default: 64 MiB.
	QueueBytes int64
}

const (
	queueEvents = 10_000
	queueBytes  = 64 << 20
	// reserved is how many events of a queue are left to requests that may have changed something.
	reserved = 256
)

// chains makes the chain of backends between the requests and the one that delivers events.
type chains struct {
	closing <-chan struct{}
	metrics *metrics
	log     *slog.Logger
}

// wrap returns the chain that ends with to, in the order of kube-apiserver's options.
func (c *chains) wrap(name string, to audit.Backend, d *Delivery) audit.Backend {
	counted := &delivery{
		Backend: to, name: name, log: c.log, due: rateLimited(),
		written: c.metrics.events.WithLabelValues(name, "written"), failed: c.metrics.events.WithLabelValues(name, "failed"),
	}
	dropped := c.metrics.events.WithLabelValues(name, "dropped")
	var first audit.Backend = counted
	switch d.Mode {
	case ModeBlockingStrict:
	case ModeBlocking:
		first = lenientBackend{counted}
	default:
		batch := d.Batch
		batch.BufferSize, batch.MaxBatchSize = cmp.Or(batch.BufferSize, queueEvents), cmp.Or(batch.MaxBatchSize, 1)
		q := &queue{
			maxEvents: batch.BufferSize, maxBytes: cmp.Or(d.QueueBytes, queueBytes),
			waits: d.Mode != ModeBatch, dropped: dropped, closing: c.closing,
		}
		q.room.L = &q.mu
		counted.queue, q.Backend = q, buffered.NewBackend(counted, batch)
		c.metrics.queued(name, q.length)
		first = q
	}
	if d.Truncate != nil {
		first = truncate.NewBackend(first, *d.Truncate, auditv1.SchemeGroupVersion)
	}
	return first
}

// lenientBackend is a backend whose errors do not reject requests.
type lenientBackend struct{ audit.Backend }

// ProcessEvents implements audit.Sink.
func (b lenientBackend) ProcessEvents(events ...*auditinternal.Event) bool {
	b.Backend.ProcessEvents(events...)
	return true
}

// delivery counts what a backend delivers.
type delivery struct {
	audit.Backend
	name            string
	queue           *queue // nil without one
	written, failed prometheus.Counter
	log             *slog.Logger
	due             *rate.Sometimes
}

// ProcessEvents implements audit.Sink.
func (d *delivery) ProcessEvents(events ...*auditinternal.Event) (delivered bool) {
	defer func() { // also after a panic, which the library contains
		count := d.failed
		if delivered {
			count = d.written
		} else {
			d.due.Do(func() { d.log.Error("audit events not delivered", "backend", d.name, "events", len(events)) })
		}
		count.Add(float64(len(events)))
		if d.queue != nil {
			d.queue.delivered(events)
		}
	}()
	return d.Backend.ProcessEvents(events...)
}

// queue bounds the events on their way through the library's queue, which counts no bytes, neither
// counts what it drops, and lets any number of batches be in flight. Nothing is added to the
// library's queue that it would drop.
type queue struct {
	audit.Backend
	maxEvents int
	maxBytes  int64
	waits     bool // requests that may have changed something wait for room
	dropped   prometheus.Counter
	closing   <-chan struct{}

	mu     sync.Mutex
	room   sync.Cond
	events int
	bytes  int64
}

// ProcessEvents implements audit.Sink.
func (q *queue) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		if q.add(e) {
			q.Backend.ProcessEvents(e)
		} else {
			q.dropped.Inc()
		}
	}
	return true
}

// add makes room for an event, and reports whether there is.
func (q *queue) add(e *auditinternal.Event) bool {
	size, waits := sizeOf(e), q.waits && !isRead(e)
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.isClosing() {
		events, bytes := q.maxEvents, q.maxBytes
		switch {
		case waits:
			bytes *= 2 // reads cannot take the second half
		case q.waits:
			events = max(1, events-reserved)
		}
		if q.events < events && (q.bytes+size <= bytes || q.events == 0) {
			q.events++
			q.bytes += size
			return true
		}
		if !waits {
			return false
		}
		q.room.Wait()
	}
	return false
}

func (q *queue) isClosing() bool {
	select {
	case <-q.closing:
		return true
	default:
		return false
	}
}

// delivered makes room.
func (q *queue) delivered(events []*auditinternal.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range events {
		q.events--
		q.bytes -= sizeOf(e)
	}
	q.room.Broadcast()
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.events
}

// Run implements audit.Backend.
func (q *queue) Run(stop <-chan struct{}) error { return q.Backend.Run(stop) }

// Shutdown implements audit.Backend.
func (q *queue) Shutdown() {
	q.mu.Lock()
	q.room.Broadcast() // nobody waits after closing
	q.mu.Unlock()
	q.Backend.Shutdown()
}

// isRead reports whether the event is of a request that changes nothing.
func isRead(e *auditinternal.Event) bool {
	switch e.Verb {
	case "get", "list", "watch", "head", "options":
	default:
		return false
	}
	if e.ObjectRef != nil {
		switch e.ObjectRef.Subresource {
		case "exec", "attach", "portforward", "proxy":
			return false
		}
	}
	return true
}

// sizeOf returns about how many bytes of memory an event takes.
func sizeOf(e *auditinternal.Event) int64 {
	n := 1024 + len(e.AuditID) + len(e.RequestURI) + len(e.UserAgent) + objectBytes(e)
	for key, value := range e.Annotations {
		n += len(key) + len(value)
	}
	for _, group := range e.User.Groups {
		n += len(group)
	}
	return int64(n)
}

func objectBytes(e *auditinternal.Event) (n int) {
	if e.RequestObject != nil {
		n += len(e.RequestObject.Raw)
	}
	if e.ResponseObject != nil {
		n += len(e.ResponseObject.Raw)
	}
	return n
}

// sizeLimit removes objects that are too large to keep, whether or not there is a Truncate.
type sizeLimit struct{ audit.Backend }

// ProcessEvents implements audit.Sink.
func (b sizeLimit) ProcessEvents(events ...*auditinternal.Event) bool {
	for i, e := range events {
		if objectBytes(e) > 2*maxObject {
			small := *e
			small.RequestObject, small.ResponseObject = nil, nil
			small.Annotations = maps.Clone(e.Annotations)
			if small.Annotations == nil {
				small.Annotations = make(map[string]string)
			}
			small.Annotations[truncated] = "true"
			events[i] = &small
		}
	}
	return b.Backend.ProcessEvents(events...)
}

// truncated is the annotation of an event without its objects, as kube-apiserver's.
const truncated = "audit.k8s.io/truncated"

type metrics struct {
	events *prometheus.CounterVec
	gauges []prometheus.Collector
}

func newMetrics() *metrics {
	return &metrics{events: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_audit_events_total",
		Help: "Audit events by backend (log, webhook) and result: written, dropped (the queue was full), failed (the backend failed).",
	}, []string{"backend", "result"})}
}

// queued adds the length of a queue.
func (m *metrics) queued(backend string, length func() int) {
	m.gauges = append(m.gauges, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_audit_queue_events", Help: "Audit events waiting to be delivered, by backend.",
		ConstLabels: prometheus.Labels{"backend": backend},
	}, func() float64 { return float64(length()) }))
}

func (m *metrics) register(reg prometheus.Registerer) {
	if reg != nil {
		reg.MustRegister(append(m.gauges, m.events)...)
	}
}
