package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var metricFunctions = regexp.MustCompile(`prometheus\.New(Gauge|Counter|Untyped)Func\(`)

// TestScrapesAskNobody: metrics that functions give are made by internal/gaugefunc, which says why.
func TestScrapesAskNobody(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err == nil && metricFunctions.Match(src) {
			t.Errorf("%s: use internal/gaugefunc", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
