package usage

import (
	"strings"
	"time"
)

// Windows are made of panes; see the package's comment.
const (
	shortPane  = 10 * time.Second
	shortPanes = 6
	longPane   = 5 * time.Minute
	longPanes  = 12
)

// pane is what was counted in a time.
type pane struct {
	from, to   time.Time // to is zero while it is open
	users      *summary[string]
	userAgents *summary[string]
	resources  *summary[Resource]
	total      Cost
}

func newPane(size int, from time.Time) *pane {
	return &pane{from: from, users: newSummary[string](size), userAgents: newSummary[string](size), resources: newSummary[Resource](size)}
}

// add counts what somebody with bounded names has cost.
func (p *pane) add(a *Asker, cost *Cost) {
	weight := cost.weight()
	p.users.add(a.User, cost, weight, strings.Clone)
	p.userAgents.add(a.UserAgent, cost, weight, strings.Clone)
	p.resources.add(a.Resource, cost, weight, Resource.clone)
	p.total.add(cost)
}

// merge adds what was counted in another.
func (p *pane) merge(other *pane) {
	p.users.merge(other.users)
	p.userAgents.merge(other.userAgents)
	p.resources.merge(other.resources)
	p.total.add(&other.total)
}

// scale makes the estimates of work what it took here.
func (p *pane) scale(factor float64) {
	p.total.Work *= factor
	scale(p.users, factor)
	scale(p.userAgents, factor)
	scale(p.resources, factor)
}

func scale[K comparable](s *summary[K], factor float64) {
	for _, e := range s.entries {
		e.cost.Work *= factor
	}
}

// entries is how many keys it holds.
func (p *pane) entries() int {
	return len(p.users.entries) + len(p.userAgents.entries) + len(p.resources.entries)
}

// names is how many bytes their names have. A name that several panes hold counts in each.
func (p *pane) names() (n int) {
	for name := range p.users.entries {
		n += len(name)
	}
	for name := range p.userAgents.entries {
		n += len(name)
	}
	for r := range p.resources.entries {
		n += len(r.Group) + len(r.Resource) + len(r.Subresource)
	}
	return n
}
