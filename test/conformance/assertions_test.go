package conformance

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/semantics.md")

const semanticsFile = "../../docs/semantics.md"

// ofTheOracle are the names of cases that are generated with a running oracle, besides those in
// dedicated.
var ofTheOracle = []string{"types/every type", "discovery/documents", "discovery/schemas"}

// caseNames returns the distinct names of all cases, without numbers and paths.
func caseNames() []string {
	env := &Env{Users: map[string]Credentials{}}
	var names []string
	for _, c := range slices.Concat(
		getCases(env), listCases(env), chunkCases(env), selectorCases(env), negotiationCases(env),
		everyResourceCases([]Resource{{Path: "/api/v1/pods"}}), errorCases(env), discoveryCases(env), watchCases(env), authCases(env),
		shardCases(env), selfCases(),
	) {
		names = append(names, c.Name)
	}
	for _, l := range LiveCases() {
		names = append(names, l.Name)
	}
	for _, s := range slices.Concat(Scenarios(), OriginScenarios()) {
		names = append(names, s.Name)
	}
	names = append(append(names, ofTheOracle...), dedicated...)
	for i := range names {
		names[i] = caseName(names[i])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestSemantics checks that every case checks an assertion, that every assertion is checked, and
// that docs/semantics.md is up to date.
func TestSemantics(t *testing.T) {
	names, seen := caseNames(), make(map[string]bool)
	for _, name := range names {
		if len(Asserts(name)) == 0 {
			t.Errorf("case %q checks no assertion", name)
		}
	}
	for _, a := range Assertions() {
		if seen[a.ID] {
			t.Errorf("duplicate assertion %s", a.ID)
		}
		seen[a.ID] = true
		for _, pattern := range a.Cases {
			one := Assertion{Cases: []string{pattern}}
			if !slices.ContainsFunc(names, one.cites) {
				t.Errorf("%s: no case %q", a.ID, pattern)
			}
		}
		if len(a.Cases)+len(a.Tests) == 0 {
			t.Errorf("nothing checks %s", a.ID)
		}
		for _, test := range a.Tests {
			if !testExists(t, test) {
				t.Errorf("%s: no test %s", a.ID, test)
			}
		}
	}
	want := semantics(names)
	if *update {
		if err := os.WriteFile(semanticsFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(semanticsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/semantics.md is stale: run `make docs`")
	}
}

// testExists reports whether a test exists, given as "folder.TestName".
func testExists(t *testing.T, test string) bool {
	t.Helper()
	folder, name, _ := strings.Cut(test, ".")
	files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ` + name + `\(`)
	return slices.ContainsFunc(files, func(file string) bool {
		content, err := os.ReadFile(file)
		return err == nil && declared.Match(content)
	})
}

// groups are the headings of docs/semantics.md, by the prefixes of the assertions' IDs.
var groups = []struct{ prefixes, title string }{
	{"get", "Gets"},
	{"list", "Lists"},
	{"chunk", "Pages"},
	{"select", "Selectors"},
	{"watch", "Watches"},
	{"form", "Representations: negotiation, protobuf, Tables, metadata"},
	{"error", "Errors and rejections"},
	{"discovery", "Discovery and health"},
	{"identity", "Authentication and authorization"},
	{"write", "Writes"},
	{"fresh session stale order", "Most-recent reads, sessions, staleness"},
	{"cost aggregated drain upgrade panic", "Gateway behavior"},
}

func semantics(names []string) []byte {
	var b bytes.Buffer
	b.WriteString(`# Semantics

<!-- Generated from test/conformance by ` + "`make docs`" + `. -->

This page lists the guaranteed behavior of kubeweir, with the tests of each assertion. *Cases* are requests in test/conformance that are
sent to both kubeweir and kube-apiserver, over HTTP/1.1 and HTTP/2; the responses must be equal in status, headers, body and watch
events. The code has their paths and parameters; a name that ends in "…" stands for several cases. *Tests* are Go tests of the named
directory.

`)
	for _, g := range groups {
		fmt.Fprintf(&b, "## %s\n\n", g.title)
		for _, a := range Assertions() {
			group, _, _ := strings.Cut(a.ID, "-")
			if slices.Contains(strings.Fields(g.prefixes), group) {
				writeAssertion(&b, &a, names)
			}
		}
		b.WriteString("\n")
	}
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

func writeAssertion(b *bytes.Buffer, a *Assertion, names []string) {
	fmt.Fprintf(b, "- **%s** %s", a.ID, a.Text)
	var held []string
	n := 0
	for _, name := range names {
		if a.cites(name) {
			n++
		}
	}
	for _, c := range a.Cases {
		held = append(held, "`"+strings.Replace(c, "*", "…", 1)+"`")
	}
	if n > 0 {
		fmt.Fprintf(b, "\n  *Cases* (%d): %s.", n, strings.Join(held, ", "))
	}
	if len(a.Tests) > 0 {
		fmt.Fprintf(b, "\n  *Tests*: %s.", strings.Join(a.Tests, ", "))
	}
	b.WriteString("\n")
}
