package usage

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Window is the period of a Report.
type Window uint8

// The windows.
const (
	Minute Window = iota
	Hour
)

// Query selects a Report.
type Query struct {
	// K is the number of rows of each kind at most.
	K      int
	Window Window
	// By returns what rows are sorted by, the largest first (default the requests).
	By func(*Row) float64
}

// Report lists the largest costs.
type Report struct {
	At time.Time
	// Covers is the period: that of the window and up to a pane more, less soon after the start.
	Covers time.Duration
	Users  []Row
	// UserAgents are as clients send them.
	UserAgents []Row
	Resources  []Row
	Total      Row // of all, including those without a row
}

// Row is the cost of one user, user agent or resource.
type Row struct {
	Name string `json:"name"`
	Cost
	// CPUSeconds is Work as a time.
	CPUSeconds float64 `json:"cpuSeconds"`
	// Watches is how many are open now, followed logs and the like included.
	Watches int `json:"watches"`
	// Missing is by how many requests at most the count may be too small; 0 if it is exact.
	Missing int64 `json:"missing"`
}

// Add adds the numbers of another row.
func (r *Row) Add(more *Row) {
	r.add(&more.Cost)
	r.CPUSeconds += more.CPUSeconds
	r.Watches += more.Watches
	r.Missing += more.Missing
}

// Top returns a report.
func (u *Usage) Top(q Query, now time.Time) *Report {
	u.collect()
	all := u.window(q.Window)

	u.mu.Lock()
	all.merge(u.open)
	u.mu.Unlock()

	users, userAgents, resources := make(map[string]int), make(map[string]int), make(map[Resource]int)
	u.streams.Lock()
	total := len(u.streams.open)
	for s := range u.streams.open {
		users[s.Client.User]++
		userAgents[s.Client.UserAgent]++
		resources[s.Client.Resource]++
	}
	u.streams.Unlock()

	itself := func(name string) string { return name }
	return &Report{
		At: now, Covers: now.Sub(all.from),
		Users:      top(all.users, users, q, itself),
		UserAgents: top(all.userAgents, userAgents, q, itself),
		Resources:  top(all.resources, resources, q, Resource.String),
		Total:      rowOf("", all.total, total, 0),
	}
}

// window merges the closed panes of a window.
func (u *Usage) window(w Window) *pane {
	u.closed.Lock()
	defer u.closed.Unlock()
	panes := u.closed.short
	if w == Hour {
		panes = append(slices.Clip(u.closed.long), u.closed.growing)
	}
	// Nothing is subtracted while they are merged: there is room for all that they hold.
	all := newPane(len(panes)*2*u.opts.Size+2*u.opts.Size, time.Time{})
	for _, p := range panes {
		all.merge(p)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if all.from = u.open.from; len(panes) > 0 {
		all.from = panes[0].from
	}
	return all
}

// top returns the first rows of a summary and of the keys that have only open watches.
func top[K comparable](s *summary[K], watches map[K]int, q Query, name func(K) string) []Row {
	if q.By == nil {
		q.By = func(r *Row) float64 { return float64(r.Requests) }
	}
	missing := int64(s.error / requestWeight)
	rows := make([]Row, 0, len(s.entries))
	for key, e := range s.entries {
		rows = append(rows, rowOf(name(key), e.cost, watches[key], missing))
	}
	for key, n := range watches {
		if s.entries[key] == nil {
			rows = append(rows, rowOf(name(key), Cost{}, n, missing))
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(q.By(&b), q.By(&a)), strings.Compare(a.Name, b.Name))
	})
	return slices.Clip(rows[:min(len(rows), max(q.K, 0))])
}

func rowOf(name string, cost Cost, watches int, missing int64) Row {
	return Row{Name: name, Cost: cost, CPUSeconds: time.Duration(cost.Work).Seconds(), Watches: watches, Missing: missing}
}
