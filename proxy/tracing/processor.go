package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/time/rate"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
)

const (
	// maxQueued is how many spans wait for the collector or are being sent. A span takes up to 8 KiB,
	// usually 2.
	maxQueued = 2048
	// logInterval is how often errors of the collector are logged at most.
	logInterval = time.Minute
)

// processor queues spans for the collector. The library's own queue has the same bound, but does not
// report what it drops; here no span is added to it that it would drop.
type processor struct {
	sdktrace.SpanProcessor
	queue *queue
}

// queue counts the spans on their way to the collector.
type queue struct {
	sdktrace.SpanExporter
	ctx                       context.Context // ends what is being sent
	cancel                    context.CancelFunc
	done                      chan struct{} // closed by Shutdown
	queued                    atomic.Int64
	exported, failed, dropped prometheus.Counter
	log                       *slog.Logger
	due                       rate.Sometimes
}

func newProcessor(exporter sdktrace.SpanExporter, registerer prometheus.Registerer, log *slog.Logger) *processor {
	spans := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_tracing_spans_total",
		Help: "Sampled spans by result: exported, failed (the collector did not accept them), dropped (the queue was full).",
	}, []string{"result"})
	q := &queue{
		SpanExporter: exporter, log: log, due: rate.Sometimes{Interval: logInterval}, done: make(chan struct{}),
		exported: spans.WithLabelValues("exported"), failed: spans.WithLabelValues("failed"), dropped: spans.WithLabelValues("dropped"),
	}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	if registerer != nil {
		registerer.MustRegister(spans)
	}
	gaugefunc.Register(registerer, "kubeweir_tracing_queued_spans", "Spans that wait for the collector or are being sent; at most 2048.", func() int {
		return int(q.queued.Load())
	})
	return &processor{sdktrace.NewBatchSpanProcessor(q, sdktrace.WithMaxQueueSize(maxQueued)), q}
}

// OnEnd implements sdktrace.SpanProcessor. It never blocks.
func (p *processor) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if p.queue.queued.Add(1) > maxQueued {
		p.queue.queued.Add(-1)
		p.queue.dropped.Inc()
		return
	}
	p.SpanProcessor.OnEnd(s)
}

// ExportSpans implements sdktrace.SpanExporter. Errors are logged here, so that the library does not
// write them to standard error.
func (q *queue) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.ctx, cancel)()
	err := q.SpanExporter.ExportSpans(ctx, spans)
	q.queued.Add(-int64(len(spans)))
	if err == nil {
		q.exported.Add(float64(len(spans)))
		return nil
	}
	q.failed.Add(float64(len(spans)))
	q.due.Do(func() {
		q.log.Warn("spans lost, the collector of --tracing-config-file did not accept them", "error", err)
	})
	return nil
}

// Shutdown implements sdktrace.SpanProcessor. Once ctx has ended, the spans that are left are lost.
func (p *processor) Shutdown(ctx context.Context) error {
	err := p.SpanProcessor.Shutdown(ctx)
	p.queue.cancel()
	<-p.queue.done
	return err
}

// Shutdown implements sdktrace.SpanExporter. The library calls it once, when nothing is being sent.
func (q *queue) Shutdown(ctx context.Context) error {
	defer close(q.done)
	return q.SpanExporter.Shutdown(ctx)
}
