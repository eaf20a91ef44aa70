package fairness

import (
	"math"
	"sync/atomic"

	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	"k8s.io/apiserver/pkg/util/flowcontrol/metrics"
)

// load is how busy a priority level is.
type load struct {
	// seats is the number that its requests occupy or wait for, limit the number that exist.
	seats, limit atomic.Int64
	exempt       atomic.Bool
}

// isFull reports whether a request would have to wait, or be rejected.
func (l *load) isFull() bool {
	seats := l.seats.Load()
	return seats > 0 && seats >= l.limit.Load() && !l.exempt.Load() // an idle level serves one request, whatever its limit
}

// configured notes that the library's controller has configured the queue set of a priority level.
func (c *Controller) configured(name string, l *load) {
	c.mu.Lock()
	c.loads[name] = l
	c.mu.Unlock()
	c.version.Add(1)
}

// queueSets makes queue sets that report to the Controller.
type queueSets struct {
	fairqueuing.QueueSetFactory
	controller *Controller
}

// BeginConstruction implements fairqueuing.QueueSetFactory.
func (f queueSets) BeginConstruction(config fairqueuing.QueuingConfig, requests metrics.RatioedGaugePair, seats metrics.RatioedGauge, demand metrics.Gauge) (fairqueuing.QueueSetCompleter, error) {
	l := &load{}
	next, err := f.QueueSetFactory.BeginConstruction(config, requests, seats, demandGauge{demand, l})
	if err != nil {
		return nil, err
	}
	return completer{next, f.controller, l, config}, nil
}

// demandGauge receives the seats that a queue set occupies or has requests waiting for.
type demandGauge struct {
	metrics.Gauge
	load *load
}

// Set implements metrics.Gauge. Queue sets call no other method.
func (g demandGauge) Set(v float64) {
	g.load.seats.Store(int64(math.Round(v)))
	g.Gauge.Set(v)
}

type completer struct {
	fairqueuing.QueueSetCompleter
	controller *Controller
	load       *load
	config     fairqueuing.QueuingConfig
}

// Complete implements fairqueuing.QueueSetCompleter. The library's controller calls it for every
// priority level, after it has replaced its flow schemas and before it writes their status.
func (f completer) Complete(config fairqueuing.DispatchingConfig) fairqueuing.QueueSet {
	next := f.QueueSetCompleter.Complete(config)
	f.load.limit.Store(int64(config.ConcurrencyLimit))
	f.load.exempt.Store(f.config.DesiredNumQueues < 0)
	f.controller.configured(f.config.Name, f.load)
	return queueSet{next, f.controller, f.load}
}

type queueSet struct {
	fairqueuing.QueueSet
	controller *Controller
	load       *load
}

// BeginConfigChange implements fairqueuing.QueueSet.
func (s queueSet) BeginConfigChange(config fairqueuing.QueuingConfig) (fairqueuing.QueueSetCompleter, error) {
	next, err := s.QueueSet.BeginConfigChange(config)
	if err != nil {
		return nil, err
	}
	return completer{next, s.controller, s.load, config}, nil
}
