// Package tracing makes one OpenTelemetry span of each request, and sends the sampled ones to a
// collector by OTLP over gRPC.
//
// Names, attributes and trust are kube-apiserver's (k8s.io/apiserver/pkg/endpoints/filters/traces.go):
// the span of a client in system:masters or system:monitoring is a child of the one in its
// traceparent, and sampled as that is. The span of any other client begins a trace, with a link to
// the client's, so that clients cannot choose what is sampled.
//
// Requests never wait for the collector: spans go through a bounded queue, and those that do not fit
// are dropped and counted. Package proxy makes the spans; internal/app opens the Tracer.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracingapi "k8s.io/component-base/tracing/api/v1"
)

// Options configure a Tracer.
type Options struct {
	// Config names the collector and the sampling rate. Open returns no Tracer without it.
	Config *tracingapi.TracingConfiguration
	// Service and Instance identify the process in the spans.
	Service, Instance string
	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
	// Logger receives errors of the collector.
	Logger *slog.Logger
}

// Tracer makes spans. All methods are safe for concurrent use and may be called on a nil Tracer,
// which makes none.
type Tracer struct {
	provider  *sdktrace.TracerProvider
	processor *processor
	tracer    trace.Tracer
}

// scope is the instrumentation scope of the spans.
const scope = "github.com/kubeweir/kubeweir/proxy"

// Open returns a Tracer, which Close ends. It does not wait for the collector, which may be
// unreachable. The defaults are those of kube-apiserver: the collector at localhost:4317 without TLS,
// and no spans but those whose parent is sampled.
func Open(o Options) (*Tracer, error) {
	if o.Config == nil {
		return nil, nil
	}
	exporterOptions := []otlptracegrpc.Option{otlptracegrpc.WithInsecure()}
	if o.Config.Endpoint != nil {
		exporterOptions = append(exporterOptions, otlptracegrpc.WithEndpoint(*o.Config.Endpoint))
	}
	exporter, err := otlptracegrpc.New(context.Background(), exporterOptions...)
	if err != nil {
		return nil, fmt.Errorf("collector of traces: %w", err)
	}
	return open(o, exporter), nil
}

const million = 1_000_000

func open(o Options, exporter sdktrace.SpanExporter) *Tracer {
	rate := 0.0
	if o.Config.SamplingRatePerMillion != nil {
		rate = float64(*o.Config.SamplingRatePerMillion) / million
	}
	sampler := sdktrace.NeverSample()
	if rate > 0 {
		sampler = sdktrace.TraceIDRatioBased(rate)
	}
	spans := newProcessor(exporter, o.Registerer, o.Logger)
	p := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sampler)),
		sdktrace.WithSpanProcessor(spans),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", o.Service), attribute.String("service.instance.id", o.Instance))),
	)
	return &Tracer{provider: p, processor: spans, tracer: p.Tracer(scope)}
}

// Close sends the spans that have ended, until ctx ends. It may be called more than once.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	// The provider does nothing if ctx has ended.
	return errors.Join(t.processor.Shutdown(ctx), t.provider.Shutdown(context.WithoutCancel(ctx)))
}
