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

var clientOrders = map[string]func(*usage.Row) float64{
	"requests":         func(r *usage.Row) float64 { return float64(r.Requests) },
	"bytes":            func(r *usage.Row) float64 { return float64(r.Bytes) },
	"cpu":              func(r *usage.Row) float64 { return r.Work },
	"watches":          func(r *usage.Row) float64 { return float64(r.Watches) },
	"upstreamRequests": func(r *usage.Row) float64 { return r.UpstreamRequests },
	"upstreamBytes":    func(r *usage.Row) float64 { return r.UpstreamBytes },
}

func (b *builder) clients(m *moment) any {
	order := clientOrders[m.parameters["sort"]]
	q := usage.Query{K: maxClients, Window: usage.Minute, By: order}
	document := &Clients{At: m.now, Window: 60, Sort: m.parameters["sort"], Budgets: []ClientBudget{}, Blocked: b.Blocked.List()}
	if m.parameters["window"] == "1h" {
		q.Window, document.Window = usage.Hour, 3600
	}
	users, agents, resources := []Client{}, []Client{}, []Client{}
	for _, v := range m.views {
		report := v.Handler.Usage().Top(q, m.now)
		document.Covers = max(document.Covers, report.Covers.Seconds())
		document.Total.Add(&report.Total)
		users, agents, resources = v.addClients(users, report.Users), v.addClients(agents, report.UserAgents), v.addClients(resources, report.Resources)
		for _, budget := range v.Handler.Budgets() {
			budget.Who = shorten(budget.Who)
			document.Budgets = append(document.Budgets, ClientBudget{v.Name, budget})
		}
	}
	top := func(list []Client) []Client {
		slices.SortStableFunc(list, func(a, b Client) int { return cmp.Compare(order(&b.Row), order(&a.Row)) })
		return list[:min(len(list), maxClients)]
	}
	document.Users, document.UserAgents, document.Resources = top(users), top(agents), top(resources)
	return document
}

func (v *view) addClients(list []Client, rows []usage.Row) []Client {
	for _, row := range rows {
		list = append(list, Client{v.Name, row})
	}
	return list
}
