package console

import (
	"log/slog"
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// metrics are the metric families of a registry, by name.
type metrics map[string]*dto.MetricFamily

// gather reads a registry. It omits the metrics of collectors that fail.
func gather(from prometheus.Gatherer, log *slog.Logger) metrics {
	families, err := from.Gather()
	if err != nil {
		log.Debug("reading metrics failed", "error", err)
	}
	m := make(metrics, len(families))
	for _, family := range families {
		m[family.GetName()] = family
	}
	return m
}

// each calls visit for each series of a metric. label returns the value of a label.
func (m metrics) each(name string, visit func(label func(string) string, series *dto.Metric)) {
	for _, series := range m[name].GetMetric() {
		visit(func(label string) string {
			for _, pair := range series.Label {
				if pair.GetName() == label {
					return pair.GetValue()
				}
			}
			return ""
		}, series)
	}
}

// value returns the value of a counter or gauge.
func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return m.Untyped.GetValue()
}

// sum returns the sum of the series of a metric with these labels, given as name, value, ...
func (m metrics) sum(name string, labels ...string) (total float64) {
	m.each(name, func(label func(string) string, series *dto.Metric) {
		for i := 0; i+1 < len(labels); i += 2 {
			if label(labels[i]) != labels[i+1] {
				return
			}
		}
		total += value(series)
	})
	return total
}

// by returns the sums of the series of a metric, by the value of a label.
func (m metrics) by(name, of string) map[string]float64 {
	all := make(map[string]float64)
	m.each(name, func(label func(string) string, series *dto.Metric) { all[label(of)] += value(series) })
	return all
}

// mean returns the mean of all observations of a histogram, nil without any.
func (m metrics) mean(name string) *float64 {
	var sum, n float64
	m.each(name, func(_ func(string) string, series *dto.Metric) {
		sum += series.GetHistogram().GetSampleSum()
		n += float64(series.GetHistogram().GetSampleCount())
	})
	if n == 0 {
		return nil
	}
	return finite(sum / n)
}

// finite returns nil for numbers that JSON cannot represent.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// plus adds two numbers. A number that is nil is unknown and does not count.
func plus(a, b *float64) *float64 {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return finite(*a + *b)
}

// share returns part/whole, nil if there is nothing.
func share(part, whole float64) *float64 {
	if whole <= 0 || part < 0 {
		return nil
	}
	return finite(min(1, part/whole))
}
