// Package gaugefunc provides gauges and counters whose value is computed by a function, like
// prometheus.NewGaugeFunc and NewCounterFunc, except that a scrape calls the function while it
// collects, not while it reads the collected metrics.
//
// The difference prevents a deadlock. prometheus.Registry.Gather collects into a channel with room
// for 1,000 metrics, and a vector holds its own lock meanwhile. When Gather reads a GaugeFunc from
// the channel it calls the function, and drains nothing else. If the function waits for a lock
// whose holder wants a new child of a vector that is blocked on the full channel, it waits forever,
// and with it all scrapes and everyone who wants that lock. Here Gather only reads finished numbers
// and never waits for a lock, so every collector makes progress.
package gaugefunc

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// New returns a gauge with the value of the function. The function may take locks. Each scrape
// calls it from one goroutine; concurrent scrapes call it concurrently. A panic makes the scrape
// fail, not the process.
func New(opts prometheus.GaugeOpts, value func() float64) prometheus.Collector {
	return newFunction(prometheus.Opts(opts), prometheus.GaugeValue, value)
}

// Register registers a gauge with the value of the function, see New. r may be nil.
func Register[N int | int64 | float64](r prometheus.Registerer, name, help string, value func() N) {
	if r != nil {
		r.MustRegister(New(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) }))
	}
}

// NewCounter is New for a counter: the function must never return less than before.
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
