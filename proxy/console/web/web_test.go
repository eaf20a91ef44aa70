package web

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// maxBytes is what a browser fetches for the whole console at most.
const maxBytes = 150_000

func TestSize(t *testing.T) {
	var sum int64
	each(t, func(_, text string) { sum += int64(len(text)) })
	if sum > maxBytes {
		t.Errorf("the console has %d bytes, at most %d are wanted", sum, maxBytes)
	}
	t.Logf("%d of %d bytes", sum, maxBytes)
}

// forbidden is what the policy that the pages are served with refuses, what would make markup of the names that
// clients choose, and what would fetch from elsewhere. The browser test sees to the rest.
var forbidden = map[string]*regexp.Regexp{
	"makes markup of text": regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|setHTML`),
	"runs text":            regexp.MustCompile(`\beval\(|new Function|javascript:`),
	"has inline style":     regexp.MustCompile(`\bstyle=|<style|['"]style['"]`),
	"has inline script":    regexp.MustCompile(`<script(>| [^>]*[^"]>)|<[^>]+ on[a-z]+=`),
	"names another origin": regexp.MustCompile(`(https?:)?//[a-z0-9-]+\.[a-z]`),
}

// namespaces of XML look like addresses and are none.
var namespaces = strings.NewReplacer("http://www.w3.org/2000/svg", "")

func TestNothingForbidden(t *testing.T) {
	each(t, func(name, text string) {
		for what, pattern := range forbidden {
			if found := pattern.FindString(namespaces.Replace(text)); found != "" {
				t.Errorf("%s %s: %q", name, what, found)
			}
		}
	})
}

var reference = regexp.MustCompile(`(?:from|import|href=|src=) ?["'](?:\./|console/)([^"']+)["']`)

// TestReferences: every file is reached from index.html, and every reference is a file's name that is served as it is.
func TestReferences(t *testing.T) {
	files := make(map[string]string)
	each(t, func(name, text string) { files[name] = text })
	reached := make(map[string]bool)
	var reach func(name string)
	reach = func(name string) {
		text, ok := files[name]
		if !ok {
			t.Errorf("%s is referred to and not there", name)
		}
		if reached[name] || !ok {
			return
		}
		reached[name] = true
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			reach(m[1])
		}
	}
	reach("index.html")
	plain := regexp.MustCompile(`^[a-z0-9-]+\.(html|css|js|svg)$`)
	for name := range files {
		if !reached[name] {
			t.Errorf("nothing refers to %s", name)
		}
		if !plain.MatchString(name) {
			t.Errorf("%s is no name that is served", name)
		}
	}
}

func each(t *testing.T, do func(name, text string)) {
	t.Helper()
	entries, err := fs.ReadDir(Files(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := fs.ReadFile(Files(), e.Name())
		if err != nil {
			t.Fatal(err)
		}
		do(e.Name(), string(b))
	}
}
