package realkube

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics holds the metric families of one scrape by name.
type Metrics map[string]*dto.MetricFamily

// Metrics scrapes kube-apiserver's metrics.
func (c *Cluster) Metrics(ctx context.Context) (Metrics, error) {
	b, err := c.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return ParseMetrics(b)
}

// ParseMetrics parses the Prometheus text format.
func ParseMetrics(text []byte) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	m, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	return m, nil
}

// onlyFamilies returns the lines of text for counters and gauges with these names, or all lines if
// there are no names.
func onlyFamilies(text []byte, names []string) []byte {
	if len(names) == 0 {
		return text
	}
	var retained []byte
	for line := range bytes.Lines(text) {
		sample := bytes.TrimPrefix(bytes.TrimPrefix(line, []byte("# HELP ")), []byte("# TYPE "))
		end := bytes.IndexAny(sample, "{ ")
		if end > 0 && slices.Contains(names, string(sample[:end])) {
			retained = append(retained, line...)
		}
	}
	return retained
}

// Sum adds the series of a family that have all the given labels: values of counters, gauges and
// untyped series, sample counts of histograms and summaries. A missing family sums to zero, like a
// counter that has not been incremented.
func (m Metrics) Sum(family string, labels map[string]string) float64 {
	var sum float64
	for _, s := range m[family].GetMetric() {
		if hasLabels(s, labels) {
			sum += s.GetCounter().GetValue() + s.GetGauge().GetValue() + s.GetUntyped().GetValue() +
				float64(s.GetHistogram().GetSampleCount()+s.GetSummary().GetSampleCount())
		}
	}
	return sum
}

func hasLabels(s *dto.Metric, want map[string]string) bool {
	found := 0
	for _, l := range s.GetLabel() {
		if v, ok := want[l.GetName()]; ok {
			if v != l.GetValue() {
				return false
			}
			found++
		}
	}
	return found == len(want)
}
