package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// A report is the table of all faults in docs/faults.md.
type report struct {
	names []string // of the faults, in the order of the table
	mu    sync.Mutex
	rows  map[string]string // by name of the fault
}

// newReport returns a report that is written at the end of the test if the test injected every
// fault.
func newReport(t *testing.T) *report {
	t.Helper()
	r := &report{rows: make(map[string]string)}
	for _, f := range append(linkFaults(), serverFaults()...) {
		r.names = append(r.names, f.name)
	}
	t.Cleanup(func() {
		if *long && len(r.rows) == len(r.names) {
			must(t, r.write())
		}
	})
	return r
}

func (r *report) add(t *testing.T, o *outcome) {
	t.Helper()
	t.Log("\n" + o.text())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows[o.fault.name] = o.row()
}

// columns maps the columns of the table to the probes that they summarize.
var columns = []struct {
	head   string
	probes []string
}{
	{"`resourceVersion=0`, not older than, exact", []string{"list, rv=0", "get, rv=0", "list, not older than", "list, exact"}},
	{"most recent, strict", []string{"list, strict", "get, strict"}},
	{"most recent, session", []string{"list, session", "get, session"}},
	{"create", []string{"create"}},
	{"new watch", []string{"new watch, JSON", "new watch, protobuf"}},
	{"new user", []string{"somebody new, rv=0"}},
}

// row returns the outcome's row of the table.
func (o *outcome) row() string {
	cells := []string{o.fault.what + ", " + o.scene.end.Sub(o.scene.begin).Round(time.Second).String()}
	for _, c := range columns {
		var of []*probe
		for i := range o.scene.probes {
			for _, name := range c.probes {
				if o.scene.probes[i].name == name {
					of = append(of, &o.scene.probes[i])
				}
			}
		}
		cells = append(cells, o.during(of...))
	}
	slowest := o.slowest()
	watches, after := "open, complete", class(slowest.took)
	for _, w := range o.scene.watches {
		if w.ended() != nil {
			watches = "**end**"
		}
	}
	if slowest.err != nil {
		after = "**no**"
	}
	return "| " + strings.Join(append(cells, watches, after), " | ") + " |\n"
}

const begin, end = "<!-- begin of the table that go test ./test/faults -faults.long writes -->\n", "<!-- end -->\n"

// write replaces the table in the document.
func (r *report) write() error {
	root, err := realkube.RepoRoot()
	if err != nil {
		return err
	}
	path := filepath.Join(root, "docs", "faults.md")
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(b), begin)
	_, after, found := strings.Cut(rest, end)
	if !ok || !found {
		return fmt.Errorf("%s: the markers of the table are missing", path)
	}
	var out strings.Builder
	out.WriteString(before + begin + "\n| fault")
	for _, c := range columns {
		out.WriteString(" | " + c.head)
	}
	out.WriteString(" | open watches | recovered after |\n|" + strings.Repeat("---|", len(columns)+3) + "\n")
	for _, name := range r.names {
		out.WriteString(r.rows[name])
	}
	out.WriteString("\n" + end + after)
	return os.WriteFile(path, []byte(out.String()), 0o644)
}

// text returns the outcome for the test's log.
func (o *outcome) text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s, %s\n", o.fault.name, o.fault.what, o.scene.end.Sub(o.scene.begin).Round(time.Second))
	for i := range o.scene.probes {
		p := &o.scene.probes[i]
		fmt.Fprintf(&out, "  %-24s %-50s back after %s %v\n", p.name, o.during(p), o.probes[i].took.Round(10*time.Millisecond), o.probes[i].err)
	}
	for i, w := range o.scene.watches {
		fmt.Fprintf(&out, "  open watch, %-62s back after %s %v\n", w.name, o.watches[i].took.Round(10*time.Millisecond), o.watches[i].err)
	}
	return out.String()
}
