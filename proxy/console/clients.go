package console

import (
	"cmp"
	"slices"

	"github.com/kubeweir/kubeweir/proxy/usage"
)

// maxClients is the maximum number of users, of user agents and of resources.
const maxClients = 25

// clientOrderNames are the values of the parameter sort, the default first.
var clientOrderNames = []string{"requests", "bytes", "cpu", "watches", "upstreamRequests", "upstreamBytes"}

var clientOrders = map[string]struct {
	by  func(*usage.Row) float64
	key func(*Client) float64
}{
	"requests":         {nil, func(c *Client) float64 { return c.Requests }},
	"bytes":            {func(r *usage.Row) float64 { return float64(r.Bytes) }, func(c *Client) float64 { return c.Bytes }},
	"cpu":              {func(r *usage.Row) float64 { return r.Work }, func(c *Client) float64 { return c.CPUSeconds }},
	"watches":          {func(r *usage.Row) float64 { return float64(r.Watches) }, func(c *Client) float64 { return c.Watches }},
	"upstreamRequests": {func(r *usage.Row) float64 { return r.UpstreamRequests }, func(c *Client) float64 { return c.UpstreamRequests }},
	"upstreamBytes":    {func(r *usage.Row) float64 { return r.UpstreamBytes }, func(c *Client) float64 { return c.UpstreamBytes }},
}

func (b *builder) clients(m *moment) any {
	order := clientOrders[m.parameters["sort"]]
	q := usage.Query{K: maxClients, Window: usage.Minute, By: order.by}
	document := &Clients{At: m.now, Window: 60, Sort: m.parameters["sort"], Budgets: []ClientBudget{}, Blocked: []Blocked{}}
	if m.parameters["window"] == "1h" {
		q.Window, document.Window = usage.Hour, 3600
	}
	users, agents, resources := []Client{}, []Client{}, []Client{}
	for _, v := range m.views {
		report := v.Handler.Usage().Top(q, m.now)
		document.Covers = max(document.Covers, report.Covers.Seconds())
		document.Total.add(&report.Total)
		users, agents, resources = v.addClients(users, report.Users), v.addClients(agents, report.UserAgents), v.addClients(resources, report.Resources)
		for _, budget := range v.Handler.Budgets() {
			document.Budgets = append(document.Budgets, ClientBudget{
				Cluster: v.Name, Rule: budget.Rule, Who: shorten(budget.Who),
				RequestsPerSecond: float64(budget.RequestsPerSecond), BytesPerSecond: float64(budget.BytesPerSecond),
				Refused: float64(budget.Refused), AnsweredStale: float64(budget.AnsweredStale),
			})
		}
	}
	top := func(list []Client) []Client {
		slices.SortStableFunc(list, func(a, b Client) int { return cmp.Compare(order.key(&b), order.key(&a)) })
		return list[:min(len(list), maxClients)]
	}
	document.Users, document.UserAgents, document.Resources = top(users), top(agents), top(resources)
	for _, one := range b.Blocked.List() {
		document.Blocked = append(document.Blocked, Blocked{UserAgent: one.Pattern, Since: one.Since, Until: optional(one.Until), Refused: float64(one.Refused)})
	}
	return document
}

func (v *view) addClients(list []Client, rows []usage.Row) []Client {
	for i := range rows {
		one := Client{Cluster: v.Name, Name: rows[i].Name}
		one.add(&rows[i])
		list = append(list, one)
	}
	return list
}

func (c *Client) add(row *usage.Row) {
	c.Requests += float64(row.Requests)
	c.Bytes += float64(row.Bytes)
	c.CPUSeconds += row.CPU.Seconds()
	c.Watches += float64(row.Watches)
	c.UpstreamRequests += row.UpstreamRequests
	c.UpstreamBytes += row.UpstreamBytes
	c.Refused += float64(row.Rejected)
	c.Missing += float64(row.Missing)
}
