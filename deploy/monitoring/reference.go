package monitoring

import (
	"fmt"
	"regexp"
	"strings"
)

// Documented is a metric as docs/metrics.md describes it: its type, and its labels with their
// values. A label without values is not bounded by the code.
type Documented struct {
	Type   string
	Labels map[string][]string
}

var (
	labelLine  = regexp.MustCompile("^- `([a-z]+)`: ([^;]*)")
	metricLine = regexp.MustCompile("^\\| `(kubeweir_[a-z0-9_]+)` \\| ([a-z]+) \\| (.*?) \\|")
	labelCell  = regexp.MustCompile("`([a-z]+)`(?: \\(([^)]*)\\))?")
	quoted     = regexp.MustCompile("`([^`]+)`")
)

// Reference parses docs/metrics.md.
func Reference(text string) (map[string]Documented, error) {
	common := make(map[string][]string)
	all := make(map[string]Documented)
	for line := range strings.Lines(text) {
		if m := labelLine.FindStringSubmatch(line); m != nil {
			if strings.HasPrefix(m[2], "`") {
				for _, value := range quoted.FindAllStringSubmatch(m[2], -1) {
					common[m[1]] = append(common[m[1]], value[1])
				}
			} else {
				common[m[1]] = nil
			}
		}
		if m := metricLine.FindStringSubmatch(line); m != nil {
			d := Documented{m[2], make(map[string][]string)}
			for _, cell := range labelCell.FindAllStringSubmatch(m[3], -1) {
				d.Labels[cell[1]] = common[cell[1]]
				if cell[2] != "" {
					d.Labels[cell[1]] = strings.Split(cell[2], ", ")
				}
			}
			all[m[1]] = d
		}
	}
	if len(all) < 50 {
		return nil, fmt.Errorf("docs/metrics.md has %d metrics", len(all))
	}
	return all, nil
}
