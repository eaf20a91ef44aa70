package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kubeweir/kubeweir/proxy/console"
)

// defaultWidth is the width of output that is not a terminal.
const defaultWidth = 120

// maxClientRows is the number of clients shown at most.
const maxClientRows = 8

// render formats a frame as lines of at most width characters, and at most height lines unless
// height is 0.
func (t *topClient) render(f *topFrame, width, height int) string {
	lines := summary(f, t.base.Host, t.cluster)
	rows := -1
	if height > 0 {
		rows = max(0, height-len(lines)-2)
	}
	clients := clientLines(&f.Clients, min(maxClientRows, clientRows(rows)))
	lines = append(lines, clients...)
	if rows >= 0 {
		rows = max(0, height-len(lines)-2)
	}
	lines = append(lines, collectionLines(&f.Collections, t.sort, rows)...)
	var b strings.Builder
	for i, line := range lines {
		if height > 0 && i >= height {
			break
		}
		b.WriteString(cut(line, width))
		b.WriteByte('\n')
	}
	return b.String()
}

// clientRows returns the number of clients that fit: a third of the rows left for both tables.
func clientRows(rows int) int {
	if rows < 0 {
		return maxClientRows
	}
	return rows / 3
}

// summary returns the first lines: state, traffic, savings and memory.
func summary(f *topFrame, host, cluster string) []string {
	o := &f.Overview
	state := "ready"
	if !o.Ready {
		state = "NOT READY"
	}
	title := fmt.Sprintf("kubeweir %s %s at %s: %s", printable(f.Session.Mode), printable(f.Session.Version), host, state)
	switch {
	case cluster != "":
		title += ", cluster " + printable(cluster)
	case len(f.Session.Clusters) > 0:
		title += fmt.Sprintf(", %d clusters", len(f.Session.Clusters))
	}
	lines := []string{title + "  " + o.At.UTC().Format(time.TimeOnly) + " UTC"}
	for _, check := range o.Checks {
		if !check.OK {
			lines = append(lines, "  ! "+printable(strings.TrimPrefix(check.Cluster+"/"+check.Name, "/")+": "+check.Reason))
		}
	}
	if u := o.Upstream; u != nil && !u.Reachable {
		lines = append(lines, "  ! cluster unreachable")
	}
	by := o.Requests.BySource
	lines = append(lines,
		fmt.Sprintf("requests  %s/s  cached %s  revalidated %s  coalesced %s  forwarded %s  errors %s/s",
			rateText(o.Requests.Rate), rateText(by["cached"].Rate), rateText(by["revalidated"].Rate), rateText(by["collapsed"].Rate), rateText(by["forwarded"].Rate), rateText(o.Requests.Errors.Rate)),
		fmt.Sprintf("cache     hit ratio %s, %s since start  sent %s/s  received %s/s",
			percent(o.Reads.HitShareRecent), percent(o.Reads.HitShare), bytesRate(o.Bytes.Sent.Rate), bytesRate(o.Bytes.Upstream.Rate)),
		fmt.Sprintf("watches   %d open, %d lagging  events %s/s in, %s/s out  max feed lag %s",
			o.Watches.Open, o.Watches.Lagging, rateText(o.Watches.EventsIn.Rate), rateText(o.Watches.EventsOut.Rate), lagText(&o.Lag)),
		fmt.Sprintf("saved     about %s upstream requests, %s, %s of kube-apiserver CPU",
			countText(o.Saved.Requests), bytesText(o.Saved.Bytes), time.Duration(o.Saved.CPUSeconds*float64(time.Second)).Round(time.Second)),
		fmt.Sprintf("memory    %s  CPU %s cores  collections %d with %s objects, %s",
			bytesText(o.Memory.Resident), rateText(o.CPU.Cores), o.Collections.Total, countText(float64(o.Collections.Objects)), bytesText(float64(o.Collections.Bytes))),
	)
	return lines
}

// clientLines returns the table of clients.
func clientLines(a *console.Clients, rows int) []string {
	t := newTable("CLIENT", "REQUESTS", "SENT", "CPU", "WATCHES", "UPSTREAM", "RECEIVED")
	for _, one := range slices.Concat(a.Users[:min(len(a.Users), rows)], a.UserAgents[:min(len(a.UserAgents), rows/2)]) {
		t.add(one.Name, countText(float64(one.Requests)), bytesText(float64(one.Bytes)), time.Duration(one.CPUSeconds*float64(time.Second)).Round(time.Millisecond).String(),
			countText(float64(one.Watches)), countText(one.UpstreamRequests), bytesText(one.UpstreamBytes))
	}
	return t.lines()
}

// collectionLines returns the table of collections, cut to the given number of rows unless it is
// negative.
func collectionLines(c *console.Collections, order string, rows int) []string {
	list := slices.Clone(c.Collections)
	name := func(c *console.Collection) string {
		full := c.Resource
		if c.Group != "" {
			full += "." + c.Group
		}
		if c.Cluster != "" {
			full = c.Cluster + "/" + full
		}
		return full
	}
	slices.SortFunc(list, func(a, b console.Collection) int {
		var by int
		switch order {
		case "objects":
			by = cmp.Compare(b.Objects, a.Objects)
		case "bytes":
			by = cmp.Compare(b.Bytes, a.Bytes)
		case "watchers":
			by = cmp.Compare(b.Watchers, a.Watchers)
		case "events":
			by = cmp.Compare(orZero(b.EventsIn.Rate), orZero(a.EventsIn.Rate))
		case "age":
			by = cmp.Compare(orZero(b.Age), orZero(a.Age))
		}
		return cmp.Or(by, cmp.Compare(name(&a), name(&b)), cmp.Compare(a.Encoding, b.Encoding))
	})
	left := 0
	if rows >= 0 && len(list) > rows {
		left = len(list) - max(0, rows-1)
		list = list[:max(0, rows-1)]
	}
	t := newTable("COLLECTION", "ENCODING", "STATE", "OBJECTS", "BYTES", "LAG", "WATCHERS", "EVENTS/S", "HISTORY")
	for i := range list {
		c := &list[i]
		state := c.State
		if c.Error != "" {
			state += " !"
		}
		t.add(name(c), c.Encoding, state, countText(float64(c.Objects)), bytesText(float64(c.Bytes)), ageText(c.Age), countText(float64(c.Watchers)),
			rateText(c.EventsIn.Rate), (time.Duration(c.History.Seconds) * time.Second).String())
	}
	lines := t.lines()
	if left > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", left))
	}
	return lines
}

// maxCell is the maximum width of a cell.
const maxCell = 48

// table collects the rows of a table.
type table struct {
	text strings.Builder
	rows *tabwriter.Writer
}

func newTable(head ...string) *table {
	t := &table{}
	t.rows = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	t.add(head...)
	return t
}

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = cut(printable(cells[i]), maxCell)
	}
	fmt.Fprintln(t.rows, strings.Join(cells, "\t"))
}

// lines returns the table, after an empty line.
func (t *table) lines() []string {
	_ = t.rows.Flush() // a strings.Builder does not fail
	return strings.Split("\n"+strings.TrimSuffix(t.text.String(), "\n"), "\n")
}

// cut shortens a line to width characters.
func cut(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	runes := []rune(line)
	if width == 1 {
		return string(runes[:1])
	}
	return string(runes[:width-1]) + "…"
}

// printable replaces the characters that a terminal might interpret, because clients choose the
// names in s.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func orZero(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

func rateText(v *float64) string {
	switch {
	case v == nil:
		return "-"
	case *v == 0:
		return "0"
	case *v < 10:
		return fmt.Sprintf("%.2f", *v)
	}
	return countText(*v)
}

// orDash formats a figure that may be missing.
func orDash(v *float64, format func(float64) string) string {
	if v == nil {
		return "-"
	}
	return format(*v)
}

func percent(v *float64) string {
	return orDash(v, func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) })
}

func ageText(v *float64) string {
	return orDash(v, func(v float64) string {
		return time.Duration(v * float64(time.Second)).Round(100 * time.Millisecond).String()
	})
}

func lagText(l *console.Lag) string {
	if l.Seconds == nil {
		return "-"
	}
	return ageText(l.Seconds) + " (" + printable(l.Collection) + ")"
}

func bytesRate(v *float64) string { return orDash(v, bytesText) }

// countText formats a number briefly.
func countText(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.1fG", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.1fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1fk", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}

// bytesText formats a size briefly.
func bytesText(v float64) string {
	switch {
	case v >= 1<<30:
		return fmt.Sprintf("%.1f GiB", v/(1<<30))
	case v >= 1<<20:
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	case v >= 1<<10:
		return fmt.Sprintf("%.1f KiB", v/(1<<10))
	}
	return fmt.Sprintf("%.0f B", v)
}
