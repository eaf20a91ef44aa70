package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wrapped is a function of a library that one of ours replaces; the comment of ours says why.
type wrapped struct {
	function *regexp.Regexp
	ours     string // the only folder that may call it
	tests    bool   // whether the rule is about test files or about the others
}

var wrappedFunctions = []wrapped{
	{regexp.MustCompile(`prometheus\.New(Gauge|Counter|Untyped)Func\(`), "internal/gaugefunc", false},
	{regexp.MustCompile(`synctest\.Test\(`), "internal/bubble", true},
}

func TestWrapped(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, w := range wrappedFunctions {
			test := strings.HasSuffix(path, "_test.go")
			if w.tests == test && filepath.ToSlash(folder) != w.ours && w.function.Match(src) {
				t.Errorf("%s: use %s", path, w.ours)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
