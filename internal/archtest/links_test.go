package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	codeBlock = regexp.MustCompile("(?s)```.*?```")
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInID   = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	metric    = regexp.MustCompile(`(kubeweir_[a-z_]*?)(?:_bucket|_sum|_count|_)?(?:[^a-z_]|$)`)
	machine   = regexp.MustCompile(`(?:^|[\s"'(=])/(?:tmp|root|work)/[a-z]`)
)

// TestPages makes sure that every relative link of every page resolves, that every metric named
// below docs is in the reference, and that no page names a path of a developer's machine.
func TestPages(t *testing.T) {
	const root = "../.."
	reference, err := os.ReadFile(filepath.Join(root, "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") && name != ".github" || name == "bin" || name == "dist"):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".md":
			return nil
		}
		pages++
		page, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if found := machine.Find(page); found != nil {
			t.Errorf("%s names %q", path, found)
		}
		if strings.HasPrefix(path, filepath.Join(root, "docs")) {
			for _, name := range metric.FindAllSubmatch(page, -1) {
				if !strings.Contains(string(reference), "`"+string(name[1])) { // it may be a prefix, for grep
					t.Errorf("%s: no metric %s", path, name[1])
				}
			}
		}
		for _, link := range mdLink.FindAllSubmatch(codeBlock.ReplaceAll(page, nil), -1) {
			checkLink(t, path, string(link[1]))
		}
		return nil
	})
	if err != nil || pages < 20 {
		t.Errorf("%d pages, %v", pages, err)
	}
}

func checkLink(t *testing.T, page, link string) {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return
	}
	file, heading, _ := strings.Cut(link, "#")
	target := page
	if file != "" {
		target = filepath.Join(filepath.Dir(page), file)
	}
	if _, err := os.Stat(target); err != nil {
		t.Errorf("%s: broken link %s", page, link)
		return
	}
	if heading == "" || filepath.Ext(target) != ".md" {
		return
	}
	content, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range mdHeading.FindAllSubmatch(content, -1) {
		id := notInID.ReplaceAllString(strings.ToLower(string(found[1])), "")
		if strings.ReplaceAll(id, " ", "-") == heading {
			return
		}
	}
	t.Errorf("%s: no heading for link %s", page, link)
}

// TestContentsListEveryPage makes sure that the table of contents links to every page of docs.
func TestContentsListEveryPage(t *testing.T) {
	contents, err := os.ReadFile("../../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(contents), "]("+name+")") {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}
