package console

import (
	"slices"
	"time"
)

// past is what is remembered of a cluster: the totals of the last moments, of which rates are
// made, and a sample each sampleStep, for series. It is guarded by Console.building.
type past struct {
	marks   []mark
	samples ring[sample]
	// collections have a sample for each one of samples since they came to be.
	collections map[string]*ring[collectionSample]
}

const (
	// sampleStep is the time between two samples, of which there are maxSamples, one more
	// than a series has points.
	sampleStep = 10 * time.Second
	maxSamples = 91
	// Rates are those since a mark that is about rateOver old. Marks are markStep apart.
	rateOver = 5 * time.Second
	markStep = 900 * time.Millisecond
	markKept = 2*sampleStep + rateOver
)

// totals are counts since the start, by what they count.
type totals map[string]float64

// mark is what the totals were at a time.
type mark struct {
	at     time.Time
	totals totals
}

// sample is what is noted of a cluster each sampleStep.
type sample struct {
	at                                   time.Time
	cached, forwarded, reads, hits, sent float64
	watches                              float64
	writes                               float64
}

// collectionSample is what is noted of a collection.
type collectionSample struct {
	events            uint64
	objects, watchers int32
}

func newPast() *past { return &past{collections: make(map[string]*ring[collectionSample])} }

// note remembers the totals of now, unless there is a mark that is hardly older. What a mark
// lacks that has just been made is added.
func (p *past) note(now time.Time, t totals) {
	p.marks = slices.DeleteFunc(p.marks, func(m mark) bool { return now.Sub(m.at) > markKept })
	if n := len(p.marks); n == 0 || now.Sub(p.marks[n-1].at) >= markStep {
		p.marks = append(p.marks, mark{now, t})
	}
}

// rate is how fast a total has grown of late; nil if that is not known, as at first, or when
// it began anew.
func (p *past) rate(now time.Time, what string, total float64) *float64 {
	var from *mark
	for i := range p.marks {
		m := &p.marks[i]
		if _, has := m.totals[what]; !has || now.Sub(m.at) < markStep {
			continue
		}
		if from == nil || now.Sub(m.at) >= rateOver {
			from = m
		}
	}
	if from == nil || total < from.totals[what] {
		return nil
	}
	return finite((total - from.totals[what]) / now.Sub(from.at).Seconds())
}

// figure is a total and its rate.
func (p *past) figure(now time.Time, what string, total float64) Figure {
	return Figure{Total: total, Rate: p.rate(now, what, total)}
}

// ring holds the last maxSamples values.
type ring[T any] struct {
	values []T
	first  int
}

func (r *ring[T]) add(v T) {
	if len(r.values) < maxSamples {
		r.values = append(r.values, v)
		return
	}
	r.values[r.first] = v
	r.first = (r.first + 1) % maxSamples
}

func (r *ring[T]) len() int { return len(r.values) }

// at returns the i-th, the oldest first.
func (r *ring[T]) at(i int) *T { return &r.values[(r.first+i)%len(r.values)] }

// points are the values of a series: those of all samples but the first, which each may be
// compared with the one before.
func (r *ring[T]) points(value func(before, now *T) *float64) Series {
	series := make(Series, 0, max(0, r.len()-1))
	for i := 1; i < r.len(); i++ {
		series = append(series, value(r.at(i-1), r.at(i)))
	}
	return series
}

// grown is how fast a total grew between two samples; nil if it began anew.
func grown(before, now float64, over time.Duration) *float64 {
	if now < before || over <= 0 {
		return nil
	}
	return finite((now - before) / over.Seconds())
}

// overview are the series of a cluster.
func (p *past) overview() OverviewSeries {
	rate := func(of func(*sample) float64) Series {
		return p.samples.points(func(before, now *sample) *float64 { return grown(of(before), of(now), now.at.Sub(before.at)) })
	}
	return OverviewSeries{
		Step:          int(sampleStep / time.Second),
		CachedRate:    rate(func(s *sample) float64 { return s.cached }),
		ForwardedRate: rate(func(s *sample) float64 { return s.forwarded }),
		SentRate:      rate(func(s *sample) float64 { return s.sent }),
		HitShare: p.samples.points(func(before, now *sample) *float64 {
			return share(now.hits-before.hits, now.reads-before.reads)
		}),
		Watches: p.samples.points(func(_, now *sample) *float64 { return &now.watches }),
	}
}

// share is a part of a whole, nil of nothing.
func share(part, whole float64) *float64 {
	if whole <= 0 || part < 0 {
		return nil
	}
	return finite(min(1, part/whole))
}

// collection are the series of a collection.
func (p *past) collection(id string) *CollectionSeries {
	r := p.collections[id]
	if r == nil {
		r = new(ring[collectionSample])
	}
	return &CollectionSeries{
		Step:     int(sampleStep / time.Second),
		Objects:  r.points(func(_, now *collectionSample) *float64 { return finite(float64(now.objects)) }),
		Watchers: r.points(func(_, now *collectionSample) *float64 { return finite(float64(now.watchers)) }),
		EventRate: r.points(func(before, now *collectionSample) *float64 {
			return grown(float64(before.events), float64(now.events), sampleStep)
		}),
	}
}
