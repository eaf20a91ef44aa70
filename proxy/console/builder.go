package console

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"
)

// builder builds documents, and records the samples that charts show. It is safe for concurrent
// use.
type builder struct {
	Options
	checking atomic.Bool // an action is comparing collections

	// mu guards the fields below, so documents are built one after the other.
	mu        sync.Mutex
	views     map[string]*view    // by cluster
	histories map[string]*history // by cluster, and processHistory
	process   struct {
		metrics metrics
		at      time.Time
	}
	types struct {
		list []StoreType
		at   time.Time
	}
}

const (
	// maxAge is how old a view may be that a client gets.
	maxAge = 500 * time.Millisecond
	// processHistory is the key of the history of the process. No cluster has this name.
	processHistory = "\x00process"
)

// topic is a kind of document.
type topic struct {
	parameters  []parameter // besides cluster
	allClusters bool        // the topic has no parameter cluster
	build       func(b *builder, m *moment) any
}

// parameter is a parameter of a topic. If it has values, it must be one of them, the first by
// default.
type parameter struct {
	name   string
	values []string
}

// query is a request for a document.
type query struct {
	topic      *topic
	name       string
	cluster    string // "" for all
	live       bool   // for a stream, without series
	parameters map[string]string
}

func newBuilder(o Options) *builder {
	return &builder{Options: o, views: make(map[string]*view), histories: make(map[string]*history)}
}

// moment is what a document is built from: the query, and the clusters that it selects.
type moment struct {
	*query
	now   time.Time
	views []*view
}

// document returns the encoded document of a query, from views that are at most maxAge old.
func (b *builder) document(q *query) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	views, err := b.read(now, q.cluster)
	if err != nil {
		return nil, err
	}
	return json.Marshal(q.topic.build(b, &moment{q, now, views}))
}

// read returns the views of a cluster, or of all clusters if name is "". The caller holds mu.
func (b *builder) read(now time.Time, name string) (views []*view, err error) {
	for _, cluster := range b.Clusters() {
		if name != "" && cluster.Name != name {
			continue
		}
		v := b.views[cluster.Name]
		if v == nil || now.Sub(v.at) >= maxAge || v.Handler != cluster.Handler {
			v = newView(now, cluster, gather(cluster.Metrics, b.Log), b.history(cluster.Name))
			b.views[cluster.Name] = v
		}
		views = append(views, v)
	}
	if len(views) == 0 && name != "" {
		return nil, errNoCluster
	}
	return views, nil
}

// processMetrics returns the metrics of the process. A single cluster may share them.
func (b *builder) processMetrics(m *moment) metrics {
	if len(m.views) == 1 && m.views[0].Metrics == b.Process {
		return m.views[0].metrics
	}
	if b.process.metrics == nil || m.now.Sub(b.process.at) >= maxAge {
		b.process.metrics, b.process.at = gather(b.Process, b.Log), m.now
	}
	return b.process.metrics
}

func (b *builder) history(name string) *history {
	h := b.histories[name]
	if h == nil {
		h = &history{collections: make(map[string][]collectionSample)}
		b.histories[name] = h
	}
	return h
}

// keepSampling records samples until ctx is canceled.
func (b *builder) keepSampling(ctx context.Context) {
	ticker := time.NewTicker(samplePeriod)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			b.sample(now)
		case <-ctx.Done():
			return
		}
	}
}

// sample records a sample of each cluster, and drops the histories of removed clusters. If it
// panics, it releases mu.
func (b *builder) sample(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	served := map[string]bool{processHistory: true}
	views, _ := b.read(now, "") // fails only for a name
	for _, v := range views {
		served[v.Name] = true
		v.history.sample(now, v.counts, v.Handler.WatchesOpen(), v.collections)
	}
	for name := range b.histories {
		if !served[name] {
			delete(b.histories, name)
			delete(b.views, name)
		}
	}
}
