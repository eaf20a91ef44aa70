package console

import (
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/cache"
)

// history is the recent past of a cluster: marks for rates, and samples for charts.
type history struct {
	marks       []mark
	samples     []sample                      // at most maxSamples
	collections map[string][]collectionSample // of current collections, by collectionID
}

const (
	samplePeriod = 10 * time.Second
	maxSamples   = 91 // one more than a series has points
	// A rate is the growth since a mark about rateWindow old. Marks are markPeriod apart.
	rateWindow = 5 * time.Second
	markPeriod = 900 * time.Millisecond
	maxMarkAge = 2*samplePeriod + rateWindow
)

// counts are counts since the start of the process, by name.
type counts map[string]float64

// mark holds the counts at a time.
type mark struct {
	at     time.Time
	counts counts
}

// sampled are the counts in a sample.
var sampled = []string{"requests/cached", "requests/forwarded", "reads", "hits", "sent", "writes"}

// sample holds counts, and the number of open watches, of a cluster.
type sample struct {
	mark
	watches float64
}

type collectionSample struct {
	events            uint64
	objects, watchers int32
}

// mark records the counts, unless the last mark is less than markPeriod old.
func (h *history) mark(now time.Time, c counts) {
	h.marks = slices.DeleteFunc(h.marks, func(m mark) bool { return now.Sub(m.at) > maxMarkAge })
	if n := len(h.marks); n == 0 || now.Sub(h.marks[n-1].at) >= markPeriod {
		h.marks = append(h.marks, mark{now, c})
	}
}

// rate returns the recent growth of a count per second. It returns nil if that is unknown: at
// first, and after the count was reset.
func (h *history) rate(now time.Time, name string, total float64) *float64 {
	var from *mark
	for i := range h.marks {
		m := &h.marks[i]
		if _, ok := m.counts[name]; !ok || now.Sub(m.at) < markPeriod {
			continue
		}
		if from == nil || now.Sub(m.at) >= rateWindow {
			from = m
		}
	}
	if from == nil {
		return nil
	}
	return growth(from.counts[name], total, now.Sub(from.at))
}

// sample records a sample of the cluster and its collections, and drops removed collections.
func (h *history) sample(now time.Time, c counts, watches int, collections []cache.CollectionStatus) {
	retained := make(counts, len(sampled)) // not c: it has an entry for each collection
	for _, name := range sampled {
		retained[name] = c[name]
	}
	h.samples = appendSample(h.samples, sample{mark{now, retained}, float64(watches)})
	current := make(map[string][]collectionSample, len(collections))
	for i := range collections {
		status := &collections[i]
		id := collectionID(status)
		current[id] = appendSample(h.collections[id], collectionSample{status.Watches.Appended, int32(status.Objects), int32(status.Watches.Watchers)})
	}
	h.collections = current
}

func appendSample[T any](samples []T, s T) []T {
	if len(samples) >= maxSamples {
		samples = slices.Delete(samples, 0, 1)
	}
	return append(samples, s)
}

// collection returns the series of a collection.
func (h *history) collection(id string) *CollectionSeries {
	samples := h.collections[id]
	return &CollectionSeries{
		Step:     int(samplePeriod / time.Second),
		Objects:  points(samples, func(_, now *collectionSample) *float64 { return finite(float64(now.objects)) }),
		Watchers: points(samples, func(_, now *collectionSample) *float64 { return finite(float64(now.watchers)) }),
		EventRate: points(samples, func(before, now *collectionSample) *float64 {
			return growth(float64(before.events), float64(now.events), samplePeriod)
		}),
	}
}

// growth returns the growth of a count per second between two times; nil if the count was reset.
func growth(before, now float64, over time.Duration) *float64 {
	if now < before || over <= 0 {
		return nil
	}
	return finite((now - before) / over.Seconds())
}

// rates returns the series of the rates of a count.
func rates(samples []sample, name string) Series {
	return points(samples, func(before, now *sample) *float64 {
		return growth(before.counts[name], now.counts[name], now.at.Sub(before.at))
	})
}

// points returns a series with a point for each sample but the first. value receives a sample and
// its predecessor.
func points[T any](samples []T, value func(before, now *T) *float64) Series {
	series := make(Series, 0, max(0, len(samples)-1))
	for i := 1; i < len(samples); i++ {
		series = append(series, value(&samples[i-1], &samples[i]))
	}
	return series
}

// overviewSeries returns the sums of the series of clusters.
func overviewSeries(histories []*history) OverviewSeries {
	sum := func(series func([]sample) Series) Series {
		all := Series{}
		for _, h := range histories {
			all = addSeries(all, series(h.samples))
		}
		return all
	}
	rate := func(name string) Series { return sum(func(s []sample) Series { return rates(s, name) }) }
	increase := func(name string) Series {
		return sum(func(s []sample) Series {
			return points(s, func(before, now *sample) *float64 { return finite(now.counts[name] - before.counts[name]) })
		})
	}
	hits, reads := increase("hits"), increase("reads")
	ratio := make(Series, len(hits))
	for i := range hits {
		if hits[i] != nil && reads[i] != nil {
			ratio[i] = share(*hits[i], *reads[i])
		}
	}
	return OverviewSeries{
		Step: int(samplePeriod / time.Second), HitShare: ratio,
		CachedRate: rate("requests/cached"), ForwardedRate: rate("requests/forwarded"), SentRate: rate("sent"),
		Watches: sum(func(s []sample) Series {
			return points(s, func(_, now *sample) *float64 { return finite(now.watches) })
		}),
	}
}

// addSeries adds two series that end at the same time.
func addSeries(a, b Series) Series {
	if len(a) < len(b) {
		a, b = b, a
	}
	sum, offset := slices.Clone(a), len(a)-len(b)
	for i := range b {
		sum[offset+i] = plus(sum[offset+i], b[i])
	}
	return sum
}
