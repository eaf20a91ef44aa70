package console

import (
	"math"
	"runtime"
	"runtime/debug"

	"github.com/kubeweir/kubeweir/cache/reflector"
)

// The approximate CPU time of kube-apiserver in seconds per request and per byte, as measured in
// docs/bench for a get, and for a list of all pods in JSON.
const (
	requestCost = 400e-6
	byteCost    = 10e-9
)

const estimate = "Requests: reads served from the cache or by a coalesced request, minus the requests that kubeweir made for itself. " +
	"Bytes: bytes sent to clients for such reads, minus the bytes that kubeweir fetched for itself. " +
	"CPU time of kube-apiserver: 0.4 ms per request and 10 ms per MB of both, as measured in docs/bench."

func (b *builder) overview(m *moment) any {
	process, own := b.processMetrics(m), b.history(processHistory)
	o := &Overview{
		At: m.now, Cluster: m.cluster, Checks: []Check{}, Requests: Requests{BySource: make(map[string]Figure)},
		Saved: Saved{Estimate: estimate}, Memory: b.memory(process, m.views),
		CPU: CPU{Seconds: process.sum("process_cpu_seconds_total"), GOMAXPROCS: runtime.GOMAXPROCS(0)},
	}
	o.CPU.Cores = own.rate(m.now, "cpu", o.CPU.Seconds)
	own.mark(m.now, counts{"cpu": o.CPU.Seconds})
	var hits, recentHits, recentReads float64
	var histories []*history
	for _, v := range m.views {
		checks, ready := v.checks()
		o.Checks, o.Ready = append(o.Checks, checks...), o.Ready || ready // one ready cluster suffices, as for /readyz
		o.addRequests(v)
		o.addSaved(v)
		o.addCollections(v)
		hits += v.counts["hits"]
		if h, r := v.count("hits").Rate, v.count("reads").Rate; h != nil && r != nil {
			recentHits, recentReads = recentHits+*h, recentReads+*r
		}
		// If a cluster is unreachable, show the first such cluster.
		if r := v.reachability(); o.Upstream == nil || r != nil && !r.Reachable && o.Upstream.Reachable {
			o.Upstream = r
		}
		histories = append(histories, v.history)
	}
	o.Reads.HitShare, o.Reads.HitShareRecent = share(hits, o.Reads.Total), share(recentHits, recentReads)
	o.Saved.Requests, o.Saved.Bytes, o.Saved.CPUSeconds = max(0, o.Saved.Requests), max(0, o.Saved.Bytes), max(0, o.Saved.CPUSeconds)
	o.Series = overviewSeries(histories)
	return o
}

func (o *Overview) addRequests(v *view) {
	o.Requests.add(v.count("requests"))
	o.Requests.Errors.add(v.count("errors"))
	for _, source := range []string{"cached", "revalidated", "collapsed", "forwarded", "gateway"} {
		f := o.Requests.BySource[source]
		f.add(v.count("requests/" + source))
		o.Requests.BySource[source] = f
	}
	o.Reads.Total += v.counts["reads"]
	o.Bytes.Sent.add(v.count("sent"))
	o.Bytes.Upstream.add(v.count("upstreamBytes"))
}

// addSaved adds the load that a cluster was saved. Forwarded requests do not count: the cluster
// would have served them anyway.
func (o *Overview) addSaved(v *view) {
	var requests, bytes float64
	for _, source := range []string{"cached", "revalidated", "collapsed"} {
		requests += v.counts["requests/"+source]
		bytes += v.counts["sent/"+source]
	}
	own := func(metric string) (sum float64) {
		for purpose, n := range v.metrics.by(metric, "purpose") {
			if purpose != "client" && purpose != "impersonate" {
				sum += n
			}
		}
		return sum
	}
	requests -= own("kubeweir_upstream_requests_total")
	bytes -= own("kubeweir_upstream_response_bytes_total")
	o.Saved.Requests += requests
	o.Saved.Bytes += bytes
	o.Saved.CPUSeconds += requests*requestCost + bytes*byteCost
}

func (o *Overview) addCollections(v *view) {
	o.Watches.Open += v.Handler.WatchesOpen()
	o.Watches.EventsIn.add(v.count("eventsIn"))
	o.Watches.EventsOut.add(v.count("eventsOut"))
	for i := range v.collections {
		c := &v.collections[i]
		o.Collections.Total++
		o.Collections.Objects += c.Objects
		o.Collections.Bytes += c.Bytes
		o.Watches.Lagging += c.Watches.Lagging
		switch c.State.Phase {
		case reflector.Synced:
			o.Collections.Synced++
			o.Watches.Upstream++
		case reflector.Starting:
			o.Collections.Starting++
		case reflector.Stale:
			o.Collections.Stale++
		case reflector.Stopped:
			o.Collections.Stopped++
		}
		if lag := lagOf(c, v.at); lag != nil && (o.Lag.Seconds == nil || *lag > *o.Lag.Seconds) {
			o.Lag.Seconds, o.Lag.Collection = lag, c.Resource.GroupResource().String()
		}
	}
}

// limits are the metrics that have a limit, which is a metric with the suffix _limit.
var limits = []struct{ name, metric, kind, unit, setting string }{
	{"Derived data: compressed lists, tables, metadata", "kubeweir_derived_bytes", "", "bytes", "limits.derivedCacheBytes"},
	{"Buffered responses", "kubeweir_response_buffer_bytes", "", "bytes", ""},
	{"Coalesced responses", "kubeweir_collapsed_bytes", "", "bytes", "limits.collapsedBodyBytes"},
	{"Long request bodies", "kubeweir_long_request_bytes", "", "bytes", ""},
	{"State on disk", "kubeweir_state_bytes", "", "bytes", "state.maxBytes"},
	{"Requests in flight", "kubeweir_requests_in_flight", "short", "requests", "limits.maxInFlight"},
	{"Watches and other long requests", "kubeweir_requests_in_flight", "long", "requests", "limits.maxWatches"},
	{"Connections", "kubeweir_connections", "", "connections", "limits.maxConnections"},
	{"Cached permissions", "kubeweir_authorization_cache_entries", "", "entries", "authorization.cacheSize"},
	{"Cached tokens", "kubeweir_authentication_cache_entries", "", "entries", "authentication.cacheSize"},
}

// memory returns the memory of the process and the use of each limit: limits of the process once,
// limits of clusters once for each cluster.
func (b *builder) memory(process metrics, views []*view) Memory {
	m := Memory{
		Resident: process.sum("process_resident_memory_bytes"), Heap: process.sum("go_memstats_heap_alloc_bytes"),
		Budgets: []Budget{},
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		m.Limit = limit
	}
	for _, l := range limits {
		add := func(from metrics, cluster string) {
			if from[l.metric] == nil {
				return
			}
			var labels []string
			if l.kind != "" {
				labels = []string{"kind", l.kind}
			}
			m.Budgets = append(m.Budgets, Budget{
				Name: l.name, Cluster: cluster, Unit: l.unit, Setting: l.setting,
				Used: from.sum(l.metric, labels...), Limit: from.sum(l.metric+"_limit", labels...),
			})
		}
		if len(views) != 1 || views[0].Metrics != b.Process {
			add(process, "")
		}
		for _, v := range views {
			add(v.metrics, v.Name)
		}
	}
	if fullest := fullestHistory(views); fullest != nil {
		m.Budgets = append(m.Budgets, *fullest)
	}
	return m
}

// fullestHistory returns the history of the collection with the largest one: each collection has a
// limit of its own.
func fullestHistory(views []*view) (b *Budget) {
	for _, v := range views {
		for i := range v.collections {
			c := &v.collections[i]
			if used := float64(c.Watches.Bytes); b == nil || used > b.Used {
				b = &Budget{
					Name: "Largest history: " + c.Resource.GroupResource().String(), Cluster: v.Name, Unit: "bytes",
					Used: used, Limit: v.metrics.sum("kubeweir_cache_history_bytes_limit"), Setting: "limits.historyBytes",
				}
			}
		}
	}
	return b
}
