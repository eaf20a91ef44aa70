package console

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/proxy/usage"
)

// maxClients is how many rows there are of each kind.
const maxClients = 25

// clientOrders are the orders of clients.
var clientOrders = map[string]struct {
	by usage.By
	of func(*Client) float64
}{
	"requests":         {usage.ByRequests, func(a *Client) float64 { return a.Requests }},
	"bytes":            {usage.ByBytes, func(a *Client) float64 { return a.Bytes }},
	"cpu":              {usage.ByCPU, func(a *Client) float64 { return a.CPUSeconds }},
	"watches":          {usage.ByWatches, func(a *Client) float64 { return a.Watches }},
	"upstreamRequests": {usage.ByUpstreamRequests, func(a *Client) float64 { return a.UpstreamRequests }},
	"upstreamBytes":    {usage.ByUpstreamBytes, func(a *Client) float64 { return a.UpstreamBytes }},
}

func (c *Console) clients(a *ask) (any, error) {
	order, err := a.one("sort", "requests", "bytes", "cpu", "watches", "upstreamRequests", "upstreamBytes")
	if err != nil {
		return nil, err
	}
	window, err := a.one("window", "1m", "1h")
	if err != nil {
		return nil, err
	}
	views, err := c.look(a.now, a.cluster)
	if err != nil {
		return nil, err
	}
	q := usage.Query{K: maxClients, Window: usage.Minute, By: clientOrders[order].by}
	document := &Clients{
		At: a.now, Window: 60, Sort: order,
		Users: []Client{}, UserAgents: []Client{}, Resources: []Client{}, Budgets: []ClientBudget{}, Blocked: []Blocked{},
	}
	if window == "1h" {
		q.Window, document.Window = usage.Hour, 3600
	}
	for _, v := range views {
		report := v.Handler.Usage().Top(q, a.now)
		for _, b := range v.Handler.Budgets() {
			document.Budgets = append(document.Budgets, ClientBudget{
				Cluster: v.Name, Rule: b.Rule, Who: shorten(b.Who), RequestsPerSecond: float64(b.RequestsPerSecond), BytesPerSecond: float64(b.BytesPerSecond),
				Refused: float64(b.Refused), AnsweredStale: float64(b.AnsweredStale),
			})
		}
		document.Covers = max(document.Covers, report.Covers.Seconds())
		document.Total.add(&report.Total)
		document.Users = v.addClients(document.Users, report.Users)
		document.UserAgents = v.addClients(document.UserAgents, report.UserAgents)
		document.Resources = v.addClients(document.Resources, report.Resources)
	}
	for _, list := range []*[]Client{&document.Users, &document.UserAgents, &document.Resources} {
		of := clientOrders[order].of
		slices.SortStableFunc(*list, func(a, b Client) int { return cmp.Compare(of(&b), of(&a)) })
		*list = (*list)[:min(len(*list), maxClients)]
	}
	if c.Blocked != nil {
		for _, b := range c.Blocked.List() {
			document.Blocked = append(document.Blocked, Blocked{UserAgent: b.Pattern, Since: b.Since, Until: present(b.Until), Refused: float64(b.Refused)})
		}
	}
	return document, nil
}

// add adds a row's figures.
func (a *Client) add(row *usage.Row) {
	a.Requests += float64(row.Requests)
	a.Bytes += float64(row.Bytes)
	a.CPUSeconds += row.CPU.Seconds()
	a.Watches += float64(row.Watches)
	a.UpstreamRequests += row.UpstreamRequests
	a.UpstreamBytes += row.UpstreamBytes
	a.Refused += float64(row.Rejected)
	a.Missing += float64(row.Missing)
}

func (v *view) addClients(list []Client, rows []usage.Row) []Client {
	for i := range rows {
		one := Client{Cluster: v.Name, Name: rows[i].Name}
		one.add(&rows[i])
		list = append(list, one)
	}
	return list
}

// maxBlocking is for how long a user agent can be blocked, in minutes.
const maxBlocking = 7 * 24 * 60

var errNotBlocked = errors.New("there is no such pattern")

// blockUserAgent has a user agent refused.
func (c *Console) blockUserAgent(body json.RawMessage) (d deed, err error) {
	var w struct {
		UserAgent string
		Minutes   float64
	}
	if err := wanted(body, &w); err != nil {
		return d, err
	}
	agent := fmt.Sprintf("%q", shorten(w.UserAgent))
	if w.Minutes < 0 || w.Minutes > maxBlocking {
		return deed{what: agent}, badParameter{"minutes must be from 0, for good, to 10080, a week"}
	}
	var until time.Time
	d = deed{agent + " until it is unblocked", "Requests of " + agent + " are answered 429 until that is taken back, or kubeweir starts anew."}
	if w.Minutes > 0 {
		until = time.Now().Add(time.Duration(w.Minutes * float64(time.Minute)))
		at := until.UTC().Format(time.RFC3339)
		d = deed{agent + " until " + at, "Requests of " + agent + " are answered 429 until " + at + "."}
	}
	if err := c.Blocked.Block(w.UserAgent, until); err != nil {
		return deed{what: d.what}, badParameter{err.Error()}
	}
	return d, nil
}

// unblockUserAgent takes that back.
func (c *Console) unblockUserAgent(body json.RawMessage) (d deed, err error) {
	var w struct{ UserAgent string }
	if err := wanted(body, &w); err != nil {
		return d, err
	}
	d.what = fmt.Sprintf("%q", shorten(w.UserAgent))
	if !c.Blocked.Unblock(w.UserAgent) {
		return d, errNotBlocked
	}
	d.text = "Requests of " + d.what + " are served again."
	return d, nil
}
