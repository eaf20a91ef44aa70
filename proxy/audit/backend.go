package audit

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// abandonedTimeout is how long an event waits for room in the queue after its client has left. The event
	// is then dropped, so that a disk that hangs does not keep the slots of requests that are over. It
	// is not dropped at once: clients could hide writes by leaving.
	abandonedTimeout = 5 * time.Second
	// reserved is how many events of a queue are left to requests that may have changed something.
	reserved = 256
)

// chains makes the chains between the requests and the backends.
type chains struct {
	closing <-chan struct{}
	metrics *metrics
	log     *slog.Logger
}

// chain bounds, queues and counts the events of one backend, in the order of kube-apiserver's options.
type chain struct {
	audit.Backend // what Run and Shutdown are for
	truncate      *truncate.Config
	queue         *queue // nil without one
	lenient       bool   // errors of the backend do not reject requests
	dropped       prometheus.Counter
}

// wrap returns the chain that ends with to.
func (c *chains) wrap(name string, to audit.Backend, d *Delivery) *chain {
	counted := &delivery{
		Backend: to, name: name, log: c.log, due: rateLimited(),
		written: c.metrics.events.WithLabelValues(name, "written"), failed: c.metrics.events.WithLabelValues(name, "failed"),
	}
	first := &chain{Backend: counted, truncate: d.Truncate, dropped: c.metrics.events.WithLabelValues(name, "dropped")}
	switch d.Mode {
	case ModeBlockingStrict:
	case ModeBlocking:
		first.lenient = true
	default:
		batch := d.Batch
		batch.BufferSize, batch.MaxBatchSize = cmp.Or(batch.BufferSize, queueEvents), cmp.Or(batch.MaxBatchSize, 1)
		q := &queue{
			maxEvents: batch.BufferSize, maxBytes: cmp.Or(d.QueueBytes, queueBytes),
			waits: d.Mode != ModeBatch, timeout: abandonedTimeout, closing: c.closing,
		}
		q.room.L = &q.mu
		counted.queue, q.Backend = q, buffered.NewBackend(counted, batch)
		c.metrics.queued(name, q.length)
		first.Backend, first.queue = q, q
	}
	return first
}

// process delivers an event of a client, whose context is done when the client has left. It returns
// false if the request must be rejected.
func (c *chain) process(client context.Context, e *auditinternal.Event) bool {
	if c.truncate == nil {
		return c.deliver(client, e)
	}
	// The library drops events without counting them, and changes the annotations.
	own := *e
	own.Annotations = maps.Clone(e.Annotations)
	truncated := truncatedEvents{Backend: c.Backend, chain: c, client: client}
	delivered := truncate.NewBackend(&truncated, *c.truncate, auditv1.SchemeGroupVersion).ProcessEvents(&own)
	if truncated.n == 0 {
		c.dropped.Inc()
	}
	return delivered
}

func (c *chain) deliver(client context.Context, e *auditinternal.Event) bool {
	switch {
	case c.queue == nil:
		return c.ProcessEvents(e) || c.lenient
	case c.queue.add(client, e):
		c.queue.Backend.ProcessEvents(e)
	default:
		c.dropped.Inc()
	}
	return true
}

// truncatedEvents takes and counts the events that the library's truncation lets pass.
type truncatedEvents struct {
	audit.Backend
	chain  *chain
	client context.Context
	n      int
}

// ProcessEvents implements audit.Sink.
func (t *truncatedEvents) ProcessEvents(events ...*auditinternal.Event) bool {
	delivered := true
	for _, e := range events {
		t.n++
		delivered = t.chain.deliver(t.client, e) && delivered
	}
	return delivered
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
	waits     bool          // requests that may have changed something wait for room
	timeout   time.Duration // for events whose client has left
	closing   <-chan struct{}

	mu     sync.Mutex
	room   sync.Cond
	events int
	bytes  int64
}

// add makes room for an event, and reports whether there is. It waits no longer than the timeout
// after the client has left.
func (q *queue) add(client context.Context, e *auditinternal.Event) bool {
	size, waits := sizeOf(e), q.waits && !isRead(e)
	events, bytes := q.maxEvents, q.maxBytes
	if q.waits && !waits {
		events, bytes = max(1, events-reserved), bytes/2 // the rest is for those that wait
	}
	var (
		abandoned bool // guarded by q.mu
		stop      func() bool
	)
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.isClosing() && !abandoned {
		if q.events < events && (q.bytes+size <= bytes || q.events == 0) {
			q.events++
			q.bytes += size
			return true
		}
		if !waits {
			return false
		}
		if stop == nil {
			stop = context.AfterFunc(client, func() {
				time.AfterFunc(q.timeout, func() {
					q.mu.Lock()
					defer q.mu.Unlock()
					abandoned = true
					q.room.Broadcast()
				})
			})
			defer stop()
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

// overhead is about how many bytes of memory a string takes besides its text, in maps and slices.
const overhead = 32

// sizeOf returns about how many bytes of memory an event takes.
func sizeOf(e *auditinternal.Event) int64 {
	n := 1024 + len(e.AuditID) + len(e.RequestURI) + len(e.Verb) + len(e.UserAgent) +
		userBytes(&e.User) + userBytes(e.ImpersonatedUser) + statusBytes(e.ResponseStatus) + objectBytes(e)
	for _, address := range e.SourceIPs {
		n += overhead + len(address)
	}
	for key, value := range e.Annotations {
		n += overhead + len(key) + len(value)
	}
	if o := e.ObjectRef; o != nil {
		n += len(o.Resource) + len(o.Namespace) + len(o.Name) + len(o.UID) + len(o.APIGroup) + len(o.APIVersion) + len(o.ResourceVersion) + len(o.Subresource)
	}
	if e.AuthenticationMetadata != nil {
		n += len(e.AuthenticationMetadata.ImpersonationConstraint)
	}
	return int64(n)
}

func userBytes(u *authnv1.UserInfo) int {
	if u == nil {
		return 0
	}
	n := len(u.Username) + len(u.UID)
	for _, group := range u.Groups {
		n += overhead + len(group)
	}
	for key, values := range u.Extra {
		n += overhead + len(key)
		for _, value := range values {
			n += overhead + len(value)
		}
	}
	return n
}

func statusBytes(s *metav1.Status) int {
	if s == nil {
		return 0
	}
	n := len(s.Status) + len(s.Message) + len(s.Reason)
	if d := s.Details; d != nil {
		n += len(d.Name) + len(d.Group) + len(d.Kind) + len(d.UID)
		for i := range d.Causes {
			n += overhead + len(d.Causes[i].Type) + len(d.Causes[i].Message) + len(d.Causes[i].Field)
		}
	}
	return n
}

func objectBytes(e *auditinternal.Event) (n int) {
	if e.RequestObject != nil {
		n += len(e.RequestObject.Raw) + len(e.RequestObject.ContentType) + len(e.RequestObject.ContentEncoding)
	}
	if e.ResponseObject != nil {
		n += len(e.ResponseObject.Raw) + len(e.ResponseObject.ContentType) + len(e.ResponseObject.ContentEncoding)
	}
	return n
}

// statusMetadata is the largest Status of an event at level Metadata, in bytes; maxStatus at others.
const statusMetadata = 8 << 10

// bounded returns the event without what is too large to keep, whether or not there is a Truncate.
func bounded(e *auditinternal.Event) *auditinternal.Event {
	limit := maxStatus
	if e.Level.Less(auditinternal.LevelRequest) {
		limit = statusMetadata
	}
	objects, status := objectBytes(e) > 2*maxObject, statusBytes(e.ResponseStatus) > limit
	if !objects && !status {
		return e
	}
	small := *e
	if objects {
		small.RequestObject, small.ResponseObject = nil, nil
	}
	if status {
		small.ResponseStatus = boundedStatus(e.ResponseStatus, limit)
	}
	small.Annotations = maps.Clone(e.Annotations)
	if small.Annotations == nil {
		small.Annotations = make(map[string]string)
	}
	small.Annotations[truncated] = "true"
	return &small
}

// boundedStatus returns s without its causes, and with half of limit for the message.
func boundedStatus(s *metav1.Status, limit int) *metav1.Status {
	small := *s
	if half := limit / 2; len(s.Message) > half {
		small.Message = strings.ToValidUTF8(s.Message[:half], "") + "...TRUNCATED"
	}
	if s.Details != nil {
		details := *s.Details
		details.Causes = nil
		small.Details = &details
	}
	if statusBytes(&small) > limit {
		small = metav1.Status{Code: s.Code, Message: small.Message}
	}
	return &small
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
		Help: "Audit events by backend (log, webhook) and result: written, dropped (the queue was full, or the event larger than the truncation allows), failed (the backend failed).",
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
