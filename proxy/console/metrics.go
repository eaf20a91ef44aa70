package console

import (
	"log/slog"
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// figures are what a registry had at a moment, by the names of the metrics.
type figures map[string]*dto.MetricFamily

// gather reads a registry. A collector that fails leaves out what it has.
func gather(from prometheus.Gatherer, log *slog.Logger) figures {
	families, err := from.Gather()
	if err != nil {
		log.Debug("some metrics cannot be read", "error", err)
	}
	f := make(figures, len(families))
	for _, family := range families {
		f[family.GetName()] = family
	}
	return f
}

// each calls visit for each series of a metric. label returns the value of a label.
func (f figures) each(name string, visit func(label func(string) string, m *dto.Metric)) {
	family := f[name]
	if family == nil {
		return
	}
	for _, m := range family.Metric {
		visit(func(label string) string {
			for _, pair := range m.Label {
				if pair.GetName() == label {
					return pair.GetValue()
				}
			}
			return ""
		}, m)
	}
}

// value is that of a counter or gauge.
func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return m.Untyped.GetValue()
}

// sum adds the series of a metric whose labels have these values: name, value and so on.
func (f figures) sum(name string, labels ...string) (total float64) {
	f.each(name, func(label func(string) string, m *dto.Metric) {
		for i := 0; i+1 < len(labels); i += 2 {
			if label(labels[i]) != labels[i+1] {
				return
			}
		}
		total += value(m)
	})
	return total
}

// by adds the series of a metric by the values of a label.
func (f figures) by(name, of string) map[string]float64 {
	all := make(map[string]float64)
	f.each(name, func(label func(string) string, m *dto.Metric) { all[label(of)] += value(m) })
	return all
}

// mean is that of all that a histogram observed; nil if that is nothing.
func (f figures) mean(name string) *float64 {
	var sum, n float64
	f.each(name, func(_ func(string) string, m *dto.Metric) {
		sum += m.GetHistogram().GetSampleSum()
		n += float64(m.GetHistogram().GetSampleCount())
	})
	if n == 0 {
		return nil
	}
	return finite(sum / n)
}

// finite is a number that JSON has; nil for others.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
