package pool

import (
	"go/build"
	"slices"
	"testing"
)

// TestGuardOfHTTP2: what does not compile is in the package just when golang.org/x/net has no
// HTTP/2 client of its own.
func TestGuardOfHTTP2(t *testing.T) {
	for _, c := range []struct {
		release  string
		tags     []string
		rejected bool
	}{
		{"go1.26", nil, false},
		{"go1.26", []string{"http2legacy"}, false},
		{"go1.27", nil, true},
		{"go1.27", []string{"http2legacy"}, false},
		{"go1.28", nil, true},
	} {
		context := build.Default
		context.BuildTags = c.tags
		all := []string{"go1.26", "go1.27", "go1.28"}
		context.ReleaseTags = all[:slices.Index(all, c.release)+1]
		rejected, err := context.MatchFile(".", "http2_guard.go")
		if err != nil || rejected != c.rejected {
			t.Errorf("%s with tags %q: refused %v, want %v, %v", c.release, c.tags, rejected, c.rejected, err)
		}
	}
}
