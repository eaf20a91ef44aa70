// Package tracingtest has a collector of spans for tests, which receives OTLP over gRPC on a loopback
// port.
package tracingtest

import (
	"context"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Span is a span as it was received. IDs are hexadecimal, "" for none. Attributes are texts.
type Span struct {
	Service, Name, Trace, ID, Parent string
	// Linked are the traces that the span has links to.
	Linked     []string
	Attributes map[string]string
	Start, End uint64 // nanoseconds since 1970
}

// Collector receives spans.
type Collector struct {
	coltrace.UnimplementedTraceServiceServer
	// Endpoint is its host:port.
	Endpoint string
	mu       sync.Mutex
	spans    []Span
}

// New starts a collector that ends with the test.
func New(t testing.TB) *Collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &Collector{Endpoint: listener.Addr().String()}, grpc.NewServer()
	coltrace.RegisterTraceServiceServer(server, c)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return c
}

// ConfigFile writes a file for --tracing-config-file.
func (c *Collector) ConfigFile(t testing.TB, samplingRatePerMillion int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: " + c.Endpoint +
		"\nsamplingRatePerMillion: " + strconv.Itoa(samplingRatePerMillion) + "\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Spans returns the spans so far, in the order of their ends for each sender.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Export implements coltrace.TraceServiceServer.
func (c *Collector) Export(_ context.Context, r *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		service := ""
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, newSpan(service, s))
			}
		}
	}
	return &coltrace.ExportTraceServiceResponse{}, nil
}

func newSpan(service string, s *tracev1.Span) Span {
	out := Span{
		Service: service, Name: s.GetName(), Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()),
		Parent: hex.EncodeToString(s.GetParentSpanId()), Attributes: make(map[string]string),
		Start: s.GetStartTimeUnixNano(), End: s.GetEndTimeUnixNano(),
	}
	for _, l := range s.GetLinks() {
		out.Linked = append(out.Linked, hex.EncodeToString(l.GetTraceId()))
	}
	for _, a := range s.GetAttributes() {
		if out.Attributes[a.GetKey()] = a.GetValue().GetStringValue(); out.Attributes[a.GetKey()] == "" {
			out.Attributes[a.GetKey()] = a.GetValue().String()
		}
	}
	return out
}
