package config

import (
	"regexp"
	"testing"

	"github.com/kubeweir/kubeweir/internal/reason"
)

// TestReasonsNameFlags: the flags that docs/reasons.md tells people to set are there.
func TestReasonsNameFlags(t *testing.T) {
	flags := make(map[string]bool)
	for _, s := range Default().program().settings() {
		flags[s.flag] = true
	}
	var entries []reason.Entry
	for _, r := range reason.Forwards() {
		entries = append(entries, r.Entry())
	}
	for _, r := range reason.WatchEnds() {
		entries = append(entries, r.Entry())
	}
	for _, r := range reason.Rejections() {
		entries = append(entries, r.Entry())
	}
	named := regexp.MustCompile(`--([a-z-]+)`)
	for _, e := range entries {
		for _, m := range named.FindAllStringSubmatch(e.When+" "+e.Client+" "+e.Do, -1) {
			if !flags[m[1]] {
				t.Errorf("%s: there is no flag --%s", e.Label, m[1])
			}
		}
	}
}
