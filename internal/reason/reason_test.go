package reason

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reasons.md")

const docsFile = "../../docs/reasons.md"

func rows[T interface{ Entry() Entry }](reasons []T) []Entry {
	var out []Entry
	for _, r := range reasons {
		out = append(out, r.Entry())
	}
	return out
}

// TestReasonsAreDescribed: each reason has a label of its own, and says when it applies and what to
// do.
func TestReasonsAreDescribed(t *testing.T) {
	label := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for name, entries := range map[string][]Entry{"Forward": rows(Forwards()), "WatchEnd": rows(WatchEnds()), "Refusal": rows(Rejections())} {
		seen := make(map[string]bool)
		for i, e := range entries {
			if !label.MatchString(e.Label) || seen[e.Label] || e.When == "" || e.Do == "" {
				t.Errorf("%s %d is not described: %+v", name, i+1, e)
			}
			seen[e.Label] = true
			if name != "Forward" && e.Client == "" {
				t.Errorf("%s %s: no text for the client", name, e.Label)
			}
			if name == "Refusal" && http.StatusText(e.Code) == "" {
				t.Errorf("%s has no status", e.Label)
			}
		}
	}
}

// TestDocs makes sure that docs/reasons.md agrees with these tables.
func TestDocs(t *testing.T) {
	want := document()
	if *update {
		if err := os.WriteFile(docsFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/reasons.md is stale: run `make docs`")
	}
}

func document() []byte {
	var b bytes.Buffer
	b.WriteString(`# Reasons

<!-- Generated from the package reason by ` + "`make docs`" + `. -->

All reasons for which kubeweir forwards a read, ends a watch or rejects a request. Each reason is the value of a metric label.

## Forwarded reads

Gets, lists and watches of resources that are neither served from the cache nor coalesced. The upstream serves them with the
permissions of the client. Metric: ` + "`kubeweir_forwarded_reads_total{reason}`" + `. With ` + "`--log-level debug`" + ` the gateway also logs
` + "`read forwarded`" + ` and sets the response header ` + "`Kubeweir-Forwarded`" + `. Writes, discovery and other requests are always forwarded,
without a reason. If several reasons apply, the first in this table is reported.

`)
	writeTable(&b, []string{"reason", "when", "response to the client", "action"}, rows(Forwards()), func(e Entry) []string {
		if e.Client == "" {
			e.Client = "The upstream's response."
		}
		return []string{e.When, e.Client, e.Do}
	})
	b.WriteString(`
## Ended watches

Watches that are served from the cache. Metric: ` + "`kubeweir_watches_ended_total{reason}`" + `; for missing permissions also
` + "`kubeweir_authorization_watches_ended_total{reason}`" + `. The upstream, or the end of the gateway, ends forwarded watches.

`)
	writeTable(&b, []string{"reason", "when", "response to the client", "action"}, rows(WatchEnds()), func(e Entry) []string {
		return []string{e.When, e.Client, e.Do}
	})
	b.WriteString(`
## Rejected requests

Requests that kubeweir itself rejects, in the order of its checks. Metric: ` + "`kubeweir_rejections_total{reason}`" + `, and the one in the
table. Not included are rejections by the upstream (413 for a body above 3 MiB, its own 429), which are forwarded, and regular
responses of the API to reads of the cache (404, 410). Connections above ` + "`--max-connections`" + `, or with a failed TLS handshake, are
closed without a response (` + "`kubeweir_connections_rejected_total{reason}`" + `).

`)
	writeTable(&b, []string{"reason", "status", "when", "response to the client", "metric", "action"}, rows(Rejections()), func(e Entry) []string {
		metric := ""
		if e.Metric != "" {
			metric = "`" + e.Metric + "`"
		}
		return []string{fmt.Sprint(e.Code), e.When, e.Client, metric, e.Do}
	})
	return b.Bytes()
}

func writeTable(b *bytes.Buffer, head []string, entries []Entry, cells func(Entry) []string) {
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, e := range entries {
		fmt.Fprintf(b, "| `%s` | %s |\n", e.Label, strings.Join(cells(e), " | "))
	}
}

// TestReasonsAreGiven makes sure that no other package converts a number to a reason, and that each
// reason is used somewhere.
func TestReasonsAreGiven(t *testing.T) {
	given := make(map[string]bool)
	for _, dir := range []string{"cache", "watchmux", "proxy", "internal/app"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if made := ofThisPackage(n.Fun); made == "Forward" || made == "WatchEnd" || made == "Refusal" {
						t.Errorf("%s converts a value to reason.%s", path, made)
					}
				case *ast.SelectorExpr:
					given[ofThisPackage(n)] = true
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range constants(t, "forward.go", "watch.go", "rejection.go") {
		if !given[name] {
			t.Errorf("reason %s is never used", name)
		}
	}
}

// TestRejectionsAreProvoked makes sure that a test provokes each rejection and checks its counter and
// response. Such tests have names like TestRejectionsAreCounted.
func TestRejectionsAreProvoked(t *testing.T) {
	provoked := make(map[string]bool)
	err := filepath.WalkDir(filepath.Join("..", "..", "proxy"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "TestRejections") || !strings.HasSuffix(f.Name.Name, "AreCounted") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if e, ok := n.(ast.Expr); ok {
					provoked[ofThisPackage(e)] = true
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range constants(t, "rejection.go") {
		if !provoked[name] {
			t.Errorf("no test provokes the rejection %s: add it to a TestRejections...AreCounted of the package that uses it", name)
		}
	}
}

// ofThisPackage returns the X of an expression reason.X, otherwise "".
func ofThisPackage(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "reason" {
			return s.Sel.Name
		}
	}
	return ""
}

// constants returns the exported constants of the files.
func constants(t *testing.T, files ...string) (names []string) {
	t.Helper()
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			if group, ok := decl.(*ast.GenDecl); ok && group.Tok == token.CONST {
				for _, spec := range group.Specs {
					for _, name := range spec.(*ast.ValueSpec).Names {
						if name.IsExported() {
							names = append(names, name.Name)
						}
					}
				}
			}
		}
	}
	return names
}
