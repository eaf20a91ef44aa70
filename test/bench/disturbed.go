package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/link"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// ReadLatency summarizes how long reads of one kind took.
type ReadLatency struct {
	Reads, Failed int
	P50, P99, Max time.Duration
}

// A Disturbance is what one gateway of several clusters used under the same load on each cluster
// while two of them were in the named state.
type Disturbance struct {
	State string
	// Cached and Strict are the reads of the other clusters: with resourceVersion=0, and of the
	// most recent state, which need the cluster.
	Cached, Strict ReadLatency
	Resident       int64
	CPU            time.Duration
}

// slowRoundTrip is the round-trip time of a slow cluster.
const slowRoundTrip = time.Second

// disturbances are the states of the links to the first and the second cluster.
var disturbances = []struct {
	name          string
	first, second link.Condition
}{
	{"all are well", link.Condition{}, link.Condition{}},
	{"one refuses, one is slow", link.Condition{Reject: true}, link.Condition{Delay: slowRoundTrip / 2}},
	{"one hangs, one is slow", link.Condition{HoldUp: true, HoldDown: true}, link.Condition{Delay: slowRoundTrip / 2}},
}

// settleTime is how long a state lasts before it is measured, so that the transition is not
// counted.
const settleTime = 10 * time.Second

// MeasureDisturbed measures reads of clusters behind one gateway while two other clusters of it are
// healthy, and while they are not.
func MeasureDisturbed(ctx context.Context, o ClustersOptions) (all []Disturbance, err error) {
	labs, stop, err := startLabs(ctx, o)
	defer stop()
	if err != nil {
		return nil, err
	}
	var ways []*link.Link
	for _, l := range labs[:2] {
		way, err := link.Start(strings.TrimPrefix(l.URL(), "https://"))
		if err != nil {
			return nil, err
		}
		defer way.Close()
		if err := l.Material().WriteKubeconfig(l.kubeconfig, way.URL()); err != nil {
			return nil, err
		}
		ways = append(ways, way)
	}
	e, err := startEdge(ctx, o, labs)
	if err != nil {
		return nil, err
	}
	defer e.stop()
	for _, state := range disturbances {
		if err := ways[0].Set(state.first); err != nil {
			return nil, err
		}
		if err := ways[1].Set(state.second); err != nil {
			return nil, err
		}
		d, err := measureDisturbance(ctx, o, e, labs)
		if err != nil {
			return nil, err
		}
		d.State = state.name
		all = append(all, d)
	}
	return all, nil
}

func measureDisturbance(ctx context.Context, o ClustersOptions, e *edgeProcess, labs []*lab) (d Disturbance, err error) {
	if _, err := readAll(ctx, o, e, labs, settleTime); err != nil {
		return d, err
	}
	edges := []*edgeProcess{e}
	before, err := realkube.CPUTime(pidsOf(edges)...)
	if err != nil {
		return d, err
	}
	readers, err := readAll(ctx, o, e, labs, o.For)
	if err != nil {
		return d, err
	}
	after, err := realkube.CPUTime(pidsOf(edges)...)
	if err != nil {
		return d, err
	}
	d.CPU = after - before
	d.Cached, d.Strict = summarize(readers[2:], "?resourceVersion=0"), summarize(readers[2:], "")
	d.Resident, err = residentOf(edges)
	return d, err
}

// A reader reads one cluster at a rate that does not depend on how long responses take.
type reader struct {
	client *http.Client
	url    string
	mu     sync.Mutex
	took   map[string][]time.Duration // by query
	failed map[string]int
}

// mostReads bounds the concurrent reads of one cluster. Reads beyond it are skipped.
const mostReads = 200

// readAll reads an object of each cluster ReadsPerSecond times a second for the given time, half of
// the reads from the cache.
func readAll(ctx context.Context, o ClustersOptions, e *edgeProcess, labs []*lab, during time.Duration) (readers []*reader, err error) {
	for _, l := range labs {
		cfg := l.RESTConfig()
		cfg.Host, cfg.TLSClientConfig.CAData, cfg.TLSClientConfig.Insecure = e.url, nil, true
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			return nil, err
		}
		readers = append(readers, &reader{
			client: client, url: e.url + "/clusters/" + l.name + "/api/v1/namespaces/default/configmaps/o0",
			took: make(map[string][]time.Duration), failed: make(map[string]int),
		})
	}
	ctx, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	var running sync.WaitGroup
	for _, r := range readers {
		running.Go(func() { r.run(ctx, time.Second/time.Duration(o.ReadsPerSecond)) })
	}
	running.Wait()
	return readers, nil
}

func (r *reader) run(ctx context.Context, pause time.Duration) {
	var running sync.WaitGroup
	defer running.Wait()
	places := make(chan struct{}, mostReads)
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		query := ""
		if i%2 == 0 {
			query = "?resourceVersion=0"
		}
		select {
		case places <- struct{}{}:
		default:
			continue
		}
		running.Go(func() {
			r.read(ctx, query)
			<-places
		})
	}
}

// read sends one read. It ignores reads that the end of the measurement interrupts.
func (r *reader) read(ctx context.Context, query string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+query, nil)
	if err != nil {
		panic(err) // the address is made here
	}
	began := time.Now()
	resp, err := r.client.Do(req)
	if err == nil {
		if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s", resp.Status)
		}
		_ = resp.Body.Close()
	}
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed[query]++
		return
	}
	r.took[query] = append(r.took[query], took)
}

func summarize(readers []*reader, query string) (l ReadLatency) {
	var took []time.Duration
	for _, r := range readers {
		took = append(took, r.took[query]...)
		l.Failed += r.failed[query]
	}
	if l.Reads = len(took); l.Reads > 0 {
		slices.Sort(took)
		l.P50, l.P99, l.Max = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	}
	return l
}
