package usage

import (
	"strings"
	"time"
)

// Windows consist of panes; see the package comment.
const (
	shortPane  = 10 * time.Second
	shortPanes = 6
	longPane   = 5 * time.Minute
	longPanes  = 12
)

// pane holds the costs of a period.
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

// add adds a cost of a client with bounded names.
func (p *pane) add(c *Client, cost *Cost) {
	weight := cost.weight()
	p.users.add(c.User, cost, weight, strings.Clone)
	p.userAgents.add(c.UserAgent, cost, weight, strings.Clone)
	p.resources.add(c.Resource, cost, weight, Resource.clone)
	p.total.add(cost)
}

// merge adds the costs of another pane.
func (p *pane) merge(other *pane) {
	p.users.merge(other.users)
	p.userAgents.merge(other.userAgents)
	p.resources.merge(other.resources)
	p.total.add(&other.total)
}

// entries returns the number of keys.
func (p *pane) entries() int {
	return len(p.users.entries) + len(p.userAgents.entries) + len(p.resources.entries)
}
