package console

import (
	"cmp"
	"maps"
	"slices"
)

// Most rows of each list.
const (
	maxDenials     = 100
	maxRevocations = 50
	maxEnded       = 100
)

func (c *Console) permissions(a *ask) (any, error) {
	views, err := c.look(a.now, a.cluster)
	if err != nil {
		return nil, err
	}
	p := &Permissions{At: a.now, Denials: []Denial{}, Revocations: []Revocation{}, EndedWatches: []EndedWatch{}, Refusals: []Rejection{}}
	refused := make(map[string]Figure)
	for _, v := range views {
		p.addDecisions(v)
		p.addDenials(v)
		p.addEnded(v)
		for why, n := range v.figures.by("kubeweir_refusals_total", "reason") {
			if n > 0 {
				f := refused[why]
				f.add(v, "refused/"+why, n)
				refused[why] = f
			}
		}
	}
	for _, why := range slices.Sorted(maps.Keys(refused)) {
		p.Refusals = append(p.Refusals, Rejection{why, refused[why]})
	}
	slices.SortFunc(p.Denials, func(a, b Denial) int { return b.At.Compare(a.At) })
	slices.SortFunc(p.Revocations, func(a, b Revocation) int { return b.At.Compare(a.At) })
	slices.SortFunc(p.EndedWatches, func(a, b EndedWatch) int { return b.At.Compare(a.At) })
	p.Denials = p.Denials[:min(len(p.Denials), maxDenials)]
	p.Revocations = p.Revocations[:min(len(p.Revocations), maxRevocations)]
	p.EndedWatches = p.EndedWatches[:min(len(p.EndedWatches), maxEnded)]
	return p, nil
}

func (p *Permissions) addDecisions(v *view) {
	const reviews = "kubeweir_authorization_reviews_total"
	d := &p.Decisions
	from, result := v.figures.by(reviews, "from"), v.figures.by(reviews, "result")
	d.Cached, d.Upstream, d.Offline = d.Cached+from["cache"], d.Upstream+from["upstream"], d.Offline+from["offline"]
	d.Allowed, d.Denied, d.Errors = d.Allowed+result["allowed"], d.Denied+result["denied"], d.Errors+result["error"]
	d.Entries += v.figures.sum("kubeweir_authorization_cache_entries")
	d.Limit += v.figures.sum("kubeweir_authorization_cache_entries_limit")
	p.Invalidations.Total += v.figures.sum("kubeweir_authorization_invalidations_total")
	if v.Changes == nil {
		return
	}
	for _, at := range v.Changes() {
		p.Revocations = append(p.Revocations, Revocation{At: at, Cluster: v.Name, What: "RBAC objects changed: all remembered decisions were dropped, and open watches reviewed."})
		if last := p.Invalidations.Last; last == nil || at.After(*last) {
			p.Invalidations.Last = &at
		}
	}
}

func (p *Permissions) addDenials(v *view) {
	for _, d := range v.Handler.Denials() {
		p.Denials = append(p.Denials, Denial{
			ID: v.numberedID(d.ID), At: d.Last, Cluster: v.Name, User: d.User, UserAgent: d.UserAgent, Verb: d.Verb,
			Group: d.Group, Resource: d.Resource, Subresource: d.Subresource, Namespace: d.Namespace, Name: d.Name, Path: d.Path,
			Reason: d.Reason, Count: d.Count,
		})
	}
}

func (p *Permissions) addEnded(v *view) {
	for _, e := range v.Handler.EndedWatches() {
		p.EndedWatches = append(p.EndedWatches, EndedWatch{
			At: e.Ended, Cluster: v.Name, User: e.User, Group: e.Group, Resource: e.Resource, Namespace: e.Namespace,
			Reason: cmp.Or(e.Reason.String(), "unknown"), Seconds: e.Ended.Sub(e.Began).Seconds(),
		})
	}
}
