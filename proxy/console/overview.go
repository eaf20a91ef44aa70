package console

import (
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/reflector"
)

// What a request and a byte cost kube-apiserver, in seconds of a processor, about: what
// docs/bench measures of a get, and of a list of all pods in JSON.
const (
	requestCost = 400e-6
	byteCost    = 10e-9
)

const estimate = "Requests: reads answered from the cache, or with an answer that was shared, less the requests that kubeweir made for itself. " +
	"Bytes: those sent to clients for such reads, less those that kubeweir fetched for itself. " +
	"Processor time of kube-apiserver: 0.4 ms a request and 10 ms a MB of both, as measured in docs/bench."

func (c *Console) overview(a *ask) (any, error) {
	views, err := c.look(a.now, a.cluster)
	if err != nil {
		return nil, err
	}
	process := c.process(a.now, views)
	o := &Overview{
		At: a.now, Cluster: a.cluster, Checks: []Check{}, Requests: Requests{BySource: make(map[string]Figure)},
		Saved: Saved{Estimate: estimate},
	}
	var recent struct{ hits, reads float64 }
	var hits float64
	for _, v := range views {
		c.addHealth(o, v)
		o.addRequests(v)
		o.addSaved(v)
		o.addWatches(v)
		o.addCollections(v)
		hits += v.totals.Hits
		if h, r := v.past.rate(v.at, "hits", v.totals.Hits), v.past.rate(v.at, "reads", v.totals.Reads); h != nil && r != nil {
			recent.hits, recent.reads = recent.hits+*h, recent.reads+*r
		}
	}
	o.Reads.HitShare, o.Reads.HitShareRecent = share(hits, o.Reads.Total), share(recent.hits, recent.reads)
	o.Saved.Requests, o.Saved.Bytes, o.Saved.CPUSeconds = max(0, o.Saved.Requests), max(0, o.Saved.Bytes), max(0, o.Saved.CPUSeconds)
	o.Memory = c.memory(process, views)
	o.CPU = CPU{Seconds: process.sum("process_cpu_seconds_total"), GOMAXPROCS: runtime.GOMAXPROCS(0)}
	own := c.pastOf(processPast)
	o.CPU.Cores = own.rate(a.now, "cpu", o.CPU.Seconds)
	own.note(a.now, totals{"cpu": o.CPU.Seconds})
	o.Upstream = worst(views)
	if len(views) == 1 {
		o.Series = views[0].past.overview()
	} else {
		o.Series = together(views)
	}
	return o, nil
}

// processPast is the name of what is remembered of the process; no cluster has it.
const processPast = "\x00process"

// addHealth adds the checks of a cluster. Of several, one that is ready is enough, as for
// /readyz.
func (c *Console) addHealth(o *Overview, v *view) {
	ready := true
	for _, check := range v.Handler.Checks() {
		result := Check{Name: check.Name, Cluster: v.Name, OK: check.Err == nil}
		if check.Err != nil {
			result.Reason, ready = check.Err.Error(), false
		}
		o.Checks = append(o.Checks, result)
	}
	o.Ready = o.Ready || ready
}

// add adds a total of a cluster to a figure.
func (f *Figure) add(v *view, what string, total float64) {
	f.Total += total
	rate := v.past.rate(v.at, what, total)
	switch {
	case rate == nil:
	case f.Rate == nil:
		f.Rate = rate
	default:
		f.Rate = finite(*f.Rate + *rate)
	}
}

func (o *Overview) addRequests(v *view) {
	o.Requests.add(v, "requests", v.counts["requests"])
	o.Requests.Errors.add(v, "errors", v.totals.Errors)
	for _, source := range []string{"cached", "revalidated", "collapsed", "forwarded", "gateway"} {
		f := o.Requests.BySource[source]
		f.add(v, "requests/"+source, v.totals.BySource[source].Requests)
		o.Requests.BySource[source] = f
	}
	o.Reads.Total += v.totals.Reads
	o.Bytes.Sent.add(v, "sent", v.counts["sent"])
	o.Bytes.Upstream.add(v, "upstreamBytes", v.counts["upstreamBytes"])
}

// addSaved adds what the upstream of a cluster was saved. Requests as a client are those that
// it would have got anyway.
func (o *Overview) addSaved(v *view) {
	var bytes, own, ownBytes float64
	for _, source := range []string{"cached", "revalidated", "collapsed"} {
		bytes += v.totals.BySource[source].Bytes
	}
	forClients := func(purpose string) bool { return purpose == "client" || purpose == "impersonate" }
	for purpose, n := range v.figures.by("kubeweir_upstream_requests_total", "purpose") {
		if !forClients(purpose) {
			own += n
		}
	}
	for purpose, n := range v.figures.by("kubeweir_upstream_response_bytes_total", "purpose") {
		if !forClients(purpose) {
			ownBytes += n
		}
	}
	answered := v.totals.BySource["cached"].Requests + v.totals.BySource["revalidated"].Requests + v.totals.BySource["collapsed"].Requests
	requests, sent := answered-own, bytes-ownBytes
	o.Saved.Requests += requests
	o.Saved.Bytes += sent
	o.Saved.CPUSeconds += requests*requestCost + sent*byteCost
}

func (o *Overview) addWatches(v *view) {
	o.Watches.Open += v.Handler.WatchesOpen()
	o.Watches.EventsIn.add(v, "eventsIn", v.counts["eventsIn"])
	o.Watches.EventsOut.add(v, "eventsOut", v.counts["eventsOut"])
	for i := range v.collections {
		o.Watches.Lagging += v.collections[i].Watches.Lagging
		if v.collections[i].State.Phase == reflector.Synced {
			o.Watches.Upstream++
		}
	}
}

func (o *Overview) addCollections(v *view) {
	for i := range v.collections {
		c := &v.collections[i]
		o.Collections.Total++
		o.Collections.Objects += c.Objects
		o.Collections.Bytes += c.Bytes
		switch c.State.Phase {
		case reflector.Synced:
			o.Collections.Synced++
		case reflector.Starting:
			o.Collections.Starting++
		case reflector.Stale:
			o.Collections.Stale++
		case reflector.Stopped:
			o.Collections.Stopped++
		}
		if age := ageOf(c, v.at); age != nil && (o.Lag.Seconds == nil || *age > *o.Lag.Seconds) {
			o.Lag.Seconds, o.Lag.Collection = age, c.Resource.GroupResource().String()
		}
	}
}

// ageOf is how long ago the feed of a collection gave a sign of life; nil for none, and for
// feeds from within the process, which need none.
func ageOf(c *cache.CollectionStatus, now time.Time) *float64 {
	fed := c.State.CurrentAt()
	if fed.IsZero() || c.State.Phase == reflector.Starting {
		return nil
	}
	return finite(math.Max(0, now.Sub(fed).Seconds()))
}

// bounded are the figures that have a limit.
var bounded = []struct{ name, metric, kind, unit, setting string }{
	{"Compressed lists, tables and metadata", "kubeweir_derived_bytes", "", "bytes", "limits.derivedCacheBytes"},
	{"Responses that are being written", "kubeweir_response_buffer_bytes", "", "bytes", ""},
	{"Answers that are being shared", "kubeweir_collapsed_bytes", "", "bytes", "limits.collapsedBodyBytes"},
	{"Large requests that last", "kubeweir_long_request_bytes", "", "bytes", ""},
	{"What is kept on disk over restarts", "kubeweir_state_bytes", "", "bytes", "state.maxBytes"},
	{"Requests under way", "kubeweir_requests_in_flight", "short", "requests", "limits.maxInFlight"},
	{"Watches and other long requests", "kubeweir_requests_in_flight", "long", "requests", "limits.maxWatches"},
	{"Connections", "kubeweir_connections", "", "connections", "limits.maxConnections"},
	{"Remembered permissions", "kubeweir_authorization_cache_entries", "", "entries", "authorization.cacheSize"},
	{"Remembered tokens", "kubeweir_authentication_cache_entries", "", "entries", "authentication.cacheSize"},
}

// memory is what the process has, and what is used of each budget. Those of the process are
// there once, those of clusters once for each.
func (c *Console) memory(process figures, views []*view) Memory {
	m := Memory{
		Resident: process.sum("process_resident_memory_bytes"), Heap: process.sum("go_memstats_heap_alloc_bytes"),
		Budgets: []Budget{},
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		m.Limit = limit
	}
	for _, b := range bounded {
		add := func(f figures, cluster string) {
			if f[b.metric] == nil {
				return
			}
			labels := []string{}
			if b.kind != "" {
				labels = append(labels, "kind", b.kind)
			}
			m.Budgets = append(m.Budgets, Budget{
				Name: b.name, Cluster: cluster, Unit: b.unit, Setting: b.setting,
				Used: f.sum(b.metric, labels...), Limit: f.sum(b.metric+"_limit", labels...),
			})
		}
		if len(views) != 1 || views[0].Metrics != c.Process {
			add(process, "")
		}
		for _, v := range views {
			add(v.figures, v.Name)
		}
	}
	if fullest := fullestHistory(views); fullest != nil {
		m.Budgets = append(m.Budgets, *fullest)
	}
	return m
}

// fullestHistory is that of the collection with the most: each has a limit of its own.
func fullestHistory(views []*view) (b *Budget) {
	for _, v := range views {
		for i := range v.collections {
			c := &v.collections[i]
			if used := float64(c.Watches.Bytes); b == nil || used > b.Used {
				b = &Budget{
					Name: "History of " + c.Resource.GroupResource().String() + ", the fullest", Cluster: v.Name, Unit: "bytes",
					Used: used, Limit: v.figures.sum("kubeweir_cache_history_bytes_limit"), Setting: "limits.historyBytes",
				}
			}
		}
	}
	return b
}

// reachability is how a cluster is reached; nil for the origin in the process.
func (v *view) reachability() *Reachability {
	if v.Upstream == nil {
		return nil
	}
	ok, since := v.Upstream.Reachable()
	r := &Reachability{Reachable: ok, Delay: v.figures.sum("kubeweir_upstream_delay_seconds")}
	if !ok && !since.IsZero() {
		r.Since = &since
	}
	if at := v.figures.sum("kubeweir_upstream_last_contact_timestamp_seconds"); at > 0 {
		last := time.UnixMilli(int64(at * 1000))
		r.LastContact = &last
	}
	return r
}

// worst is that of the clusters, one that cannot be reached if there is one.
func worst(views []*view) (r *Reachability) {
	for _, v := range views {
		if one := v.reachability(); r == nil || one != nil && !one.Reachable && r.Reachable {
			r = one
		}
	}
	return r
}

// together are the series of all clusters: sums, from the last point backwards.
func together(views []*view) OverviewSeries {
	sum := func(of func(*OverviewSeries) Series) Series {
		var all Series
		for _, v := range views {
			one := v.past.overview()
			all = addSeries(all, of(&one))
		}
		return all
	}
	s := OverviewSeries{
		Step:       int(sampleStep / time.Second),
		CachedRate: sum(func(s *OverviewSeries) Series { return s.CachedRate }), ForwardedRate: sum(func(s *OverviewSeries) Series { return s.ForwardedRate }),
		SentRate: sum(func(s *OverviewSeries) Series { return s.SentRate }), Watches: sum(func(s *OverviewSeries) Series { return s.Watches }),
		HitShare: Series{},
	}
	var hits, reads Series
	for _, v := range views {
		hits = addSeries(hits, v.past.samples.points(func(before, now *sample) *float64 { return finite(now.hits - before.hits) }))
		reads = addSeries(reads, v.past.samples.points(func(before, now *sample) *float64 { return finite(now.reads - before.reads) }))
	}
	for i := range hits {
		var point *float64
		if hits[i] != nil && reads[i] != nil {
			point = share(*hits[i], *reads[i])
		}
		s.HitShare = append(s.HitShare, point)
	}
	return s
}

// addSeries adds two series that end at the same time.
func addSeries(a, b Series) Series {
	if len(a) < len(b) {
		a, b = b, a
	}
	sum := slices.Clone(a)
	if sum == nil {
		sum = Series{}
	}
	for i := range b {
		at := len(a) - len(b) + i
		switch {
		case b[i] == nil:
		case sum[at] == nil:
			sum[at] = b[i]
		default:
			sum[at] = finite(*sum[at] + *b[i])
		}
	}
	return sum
}
