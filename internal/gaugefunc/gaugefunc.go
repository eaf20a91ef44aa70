// Package gaugefunc makes gauges and counters whose value a function gives, as prometheus.NewGaugeFunc and NewCounterFunc
// do, with the difference that a scrape asks the function where it collects, and not where it reads what was collected.
//
// prometheus.Registry.Gather collects into a channel that has room for 1,000 metrics, a vector under its own lock. While it
// reads a GaugeFunc from there it calls the function, and takes nothing else out. So a function that waits for a lock whose
// holder asks a full vector for a new child waits for ever, and with it all scrapes and whoever wants that lock. Here
// Gather reads finished numbers alone: it waits for nobody, and whoever collects may.
package gaugefunc

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// New is a gauge whose value is what the function returns, which may take locks and is called by one goroutine a scrape:
// several at a time, where scrapes are. A panic of it makes the scrape fail, not the process.
func New(opts prometheus.GaugeOpts, value func() float64) prometheus.Collector {
	return newFunction(prometheus.Opts(opts), prometheus.GaugeValue, value)
}

// NewCounter is New for a counter: the function never returns less than before.
func NewCounter(opts prometheus.CounterOpts, value func() float64) prometheus.Collector {
	return newFunction(prometheus.Opts(opts), prometheus.CounterValue, value)
}

func newFunction(opts prometheus.Opts, kind prometheus.ValueType, value func() float64) prometheus.Collector {
	name := prometheus.BuildFQName(opts.Namespace, opts.Subsystem, opts.Name)
	return &function{prometheus.NewDesc(name, opts.Help, nil, opts.ConstLabels), kind, value}
}

type function struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func() float64
}

// Describe implements prometheus.Collector.
func (f *function) Describe(ch chan<- *prometheus.Desc) { ch <- f.desc }

// Collect implements prometheus.Collector.
func (f *function) Collect(ch chan<- prometheus.Metric) {
	m := prometheus.NewInvalidMetric(f.desc, fmt.Errorf("the function of %s panicked", f.desc))
	defer func() {
		_ = recover()
		ch <- m
	}()
	m = prometheus.MustNewConstMetric(f.desc, f.kind, f.value())
}
