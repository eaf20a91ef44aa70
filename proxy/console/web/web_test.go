package web

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// maxBytes is the maximum size of all pages.
const maxBytes = 150_000

func TestSize(t *testing.T) {
	var sum int64
	each(t, func(_, text string) { sum += int64(len(text)) })
	if sum > maxBytes {
		t.Errorf("the pages have %d bytes, the limit is %d", sum, maxBytes)
	}
	t.Logf("%d of %d bytes", sum, maxBytes)
}

// forbidden matches what Policy blocks, what would turn names chosen by clients into markup, and
// what would fetch from other addresses. The browser test covers the rest.
var forbidden = map[string]*regexp.Regexp{
	"makes markup of text": regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|setHTML`),
	"runs text":            regexp.MustCompile(`\beval\(|new Function|javascript:`),
	"has inline style":     regexp.MustCompile(`\bstyle=|<style|['"]style['"]`),
	"has inline script":    regexp.MustCompile(`<script(>| [^>]*[^"]>)|<[^>]+ on[a-z]+=`),
	"names another origin": regexp.MustCompile(`(https?:)?//[a-z0-9-]+\.[a-z]`),
}

// namespaces removes XML namespaces, which look like addresses.
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

func TestAllFilesAreReachedFromIndex(t *testing.T) {
	files := make(map[string]string)
	each(t, func(name, text string) { files[name] = text })
	reached := make(map[string]bool)
	var reach func(name string)
	reach = func(name string) {
		text, ok := files[name]
		if !ok {
			t.Errorf("%s is referenced and missing", name)
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
			t.Errorf("nothing references %s", name)
		}
		if !plain.MatchString(name) {
			t.Errorf("%s is not a valid file name", name)
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
