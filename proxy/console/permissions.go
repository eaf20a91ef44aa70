package console

import (
	"maps"
	"slices"
	"time"
)

// The maximum lengths of the lists.
const (
	maxDenials = 100
	maxEnded   = 100
)

func (b *builder) permissions(m *moment) any {
	p := &Permissions{At: m.now, Rejections: []Rejection{}}
	denials, ended, rejected := []Denial{}, []EndedWatch{}, make(map[string]Figure)
	for _, v := range m.views {
		p.addDecisions(v)
		for reason, n := range v.metrics.by("kubeweir_rejections_total", "reason") {
			if n > 0 {
				f := rejected[reason]
				f.add(v.count("rejected/" + reason))
				rejected[reason] = f
			}
		}
		for _, d := range v.Handler.Denials() {
			denials = append(denials, Denial{v.number(d.ID), v.Name, d})
		}
		for _, e := range v.Handler.EndedWatches() {
			ended = append(ended, EndedWatch{v.Name, e})
		}
		if last := v.LastChange(); last != nil && (p.Invalidations.Last == nil || last.After(*p.Invalidations.Last)) {
			p.Invalidations.Last = last
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(rejected)) {
		p.Rejections = append(p.Rejections, Rejection{reason, rejected[reason]})
	}
	p.Denials = latest(denials, maxDenials, func(d Denial) time.Time { return d.Last })
	p.EndedWatches = latest(ended, maxEnded, func(e EndedWatch) time.Time { return e.Ended })
	return p
}

func (p *Permissions) addDecisions(v *view) {
	const reviews = "kubeweir_authorization_reviews_total"
	d := &p.Decisions
	from, result := v.metrics.by(reviews, "from"), v.metrics.by(reviews, "result")
	d.Cached, d.Upstream, d.Offline = d.Cached+from["cache"], d.Upstream+from["upstream"], d.Offline+from["offline"]
	d.Allowed, d.Denied, d.Errors = d.Allowed+result["allowed"], d.Denied+result["denied"], d.Errors+result["error"]
	d.Entries += v.metrics.sum("kubeweir_authorization_cache_entries")
	d.Limit += v.metrics.sum("kubeweir_authorization_cache_entries_limit")
	p.Invalidations.Total += v.metrics.sum("kubeweir_authorization_invalidations_total")
}

// latest returns the latest rows, at most limit, the latest first.
func latest[T any](rows []T, limit int, at func(T) time.Time) []T {
	slices.SortFunc(rows, func(a, b T) int { return at(b).Compare(at(a)) })
	return rows[:min(len(rows), limit)]
}
