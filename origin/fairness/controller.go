package fairness

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/eventclock"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset"
	"k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/informers"
	flowcontrolclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	flowcontrollister "k8s.io/client-go/listers/flowcontrol/v1"
)

// Options configure a Controller. All fields are required unless noted.
type Options struct {
	// Informers inform about FlowSchemas and PriorityLevelConfigurations. The caller starts them.
	Informers informers.SharedInformerFactory
	// Client writes the status of FlowSchemas.
	Client flowcontrolclient.FlowcontrolV1Interface
	// Seats is how many requests that are not exempt are served at a time, more than 0.
	Seats int
	// LongRunning reports which requests are not limited, apart from watches.
	LongRunning apirequest.LongRunningRequestCheck
	// WaitLimit is how long a request without a deadline may wait.
	WaitLimit time.Duration
	// Count returns the number of objects of a resource and their size, from which the seats of a
	// list are estimated. known is false if the resource was not counted; then a list takes one seat.
	// If nil, nothing is counted.
	Count func(schema.GroupResource) (objects, bytes int64, known bool)
}

// Controller limits requests. Its methods are safe for concurrent use.
type Controller struct {
	flowcontrol.Interface
	filter  http.Handler
	schemas flowcontrollister.FlowSchemaLister
	levels  flowcontrollister.PriorityLevelConfigurationLister
	// version counts the queue sets that were configured. current was read from the listers at a
	// version; at another one it is read again.
	version atomic.Uint64
	current atomic.Pointer[configuration]
	running sync.WaitGroup

	mu    sync.Mutex
	loads map[string]*load // of the priority levels by name; guarded by mu
}

// New returns a Controller that classifies by kube-apiserver's mandatory configuration until it is
// started.
func New(o Options) *Controller {
	api := o.Informers.Flowcontrol().V1()
	c := &Controller{
		loads: make(map[string]*load), schemas: api.FlowSchemas().Lister(), levels: api.PriorityLevelConfigurations().Lister(),
	}
	clock := eventclock.Real{}
	// flowcontrol.New, with queue sets that report their load.
	c.Interface = flowcontrol.NewTestable(flowcontrol.TestableConfig{
		Name:                   "Controller",
		Clock:                  clock,
		AsFieldManager:         flowcontrol.ConfigConsumerAsFieldManager,
		FoundToDangling:        func(found bool) bool { return !found },
		InformerFactory:        o.Informers,
		FlowcontrolClient:      o.Client,
		ServerConcurrencyLimit: o.Seats,
		ReqsGaugeVec:           metrics.PriorityLevelConcurrencyGaugeVec,
		ExecSeatsGaugeVec:      metrics.PriorityLevelExecutionSeatsGaugeVec,
		QueueSetFactory:        queueSets{queueset.NewQueueSetFactory(clock), c},
	})
	// DefaultBuildHandlerChain, with counts of Options.
	estimator := flowcontrolrequest.NewWorkEstimator(
		o.stats, c.GetInterestedWatchCount, flowcontrolrequest.DefaultWorkEstimatorConfig(), c.GetMaxSeats)
	c.filter = genericfilters.WithPriorityAndFairness(http.HandlerFunc(serveNext), o.LongRunning, c.Interface, estimator, o.WaitLimit)
	return c
}

// stats implements the library's counter of objects. key is a GroupResource.
func (o *Options) stats(key string) (storage.Stats, error) {
	if o.Count == nil {
		return storage.Stats{}, flowcontrolrequest.ObjectCountNotFoundErr
	}
	objects, bytes, known := o.Count(schema.ParseGroupResource(key))
	if !known {
		return storage.Stats{}, flowcontrolrequest.ObjectCountNotFoundErr
	}
	return storage.Stats{ObjectCount: objects, EstimatedAverageObjectSizeBytes: bytes / max(objects, 1)}, nil
}

// Run does nothing: the generic server calls it in a goroutine that nobody waits for. See Start.
func (c *Controller) Run(<-chan struct{}) error { return nil }

// Start begins to follow the configuration until ctx ends. See Wait.
func (c *Controller) Start(ctx context.Context) {
	c.running.Go(func() { _ = c.Interface.Run(ctx.Done()) }) // its only error is that ctx has ended
}

const (
	// configuredPoll is the period of WaitConfigured's polls, configuredTimeout its limit.
	configuredPoll    = time.Millisecond
	configuredTimeout = time.Second
)

// WaitConfigured waits until the Controller has configured all priority levels that the informers know,
// for at most a second: the library ignores levels that it does not understand.
func (c *Controller) WaitConfigured(ctx context.Context) error {
	timeout := time.After(configuredTimeout)
	ticker := time.NewTicker(configuredPoll)
	defer ticker.Stop()
	for !c.isConfigured() {
		select {
		case <-ticker.C:
		case <-timeout:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (c *Controller) isConfigured() bool {
	levels, _ := c.levels.List(labels.Everything())
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(levels, func(l *flowcontrolv1.PriorityLevelConfiguration) bool { return c.loads[l.Name] == nil })
}

// Wait waits until Start's goroutine has ended. Workers of the library may finish an update after it.
func (c *Controller) Wait() { c.running.Wait() }

type nextKey struct{}

// Handler limits the requests that reach next. Their contexts have the user and the RequestInfo.
func (c *Controller) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c.filter.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), nextKey{}, next)))
	})
}

// serveNext calls the handler in the context. All requests pass one filter, because a filter
// computes Retry-After from the requests that it rejected.
func serveNext(w http.ResponseWriter, req *http.Request) {
	req.Context().Value(nextKey{}).(http.Handler).ServeHTTP(w, req)
}
