package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// contained are the packages that serve requests and watches. A panic in any of their goroutines
// would end the process, so contain starts each of them.
var contained = []string{
	"watchmux", "cache", "cache/backfill", "cache/form", "proxy", "proxy/edge", "proxy/edge/h1", "proxy/edge/h2", "proxy/upstream", "proxy/upstream/health", "proxy/upstream/pool", "proxy/upstream/balance", "proxy/authn", "proxy/authz", "proxy/authz/visible", "proxy/authz/revocation", "proxy/audit", "proxy/edge/websocket", "internal/app",
}

// TestGoroutinesAreContained: a goroutine is started by Panics.Go or Keep; or its function begins
// with `defer p.Contain(place)`, where one more allocation matters; or a group runs a Panics.Func.
func TestGoroutinesAreContained(t *testing.T) {
	for _, dir := range contained {
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files in %s: %v", dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, bare := range bareGoroutines(t, src) {
				t.Errorf("%s/%s:%s; use contain", dir, filepath.Base(file), bare)
			}
		}
	}
}

// bareGoroutines returns the lines that start a goroutine whose panic would end the process.
func bareGoroutines(t *testing.T, src []byte) (bare []string) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "", src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	report := func(n ast.Node, what string) {
		bare = append(bare, fmt.Sprintf("%d: %s", set.Position(n.Pos()).Line, what))
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			if !beginsContained(n.Call.Fun) {
				report(n, "a bare go statement")
			}
		case *ast.CallExpr:
			// The Go of a group takes only the function; Panics.Go takes the group, the place and
			// the function.
			if methodOf(n) == "Go" && len(n.Args) == 1 && !isCallOf(n.Args[0], "Func") {
				report(n, "a goroutine of a group")
			}
		}
		return true
	})
	return bare
}

func beginsContained(fun ast.Expr) bool {
	lit, ok := fun.(*ast.FuncLit)
	if !ok || len(lit.Body.List) == 0 {
		return false
	}
	first, ok := lit.Body.List[0].(*ast.DeferStmt)
	return ok && methodOf(first.Call) == "Contain"
}

func isCallOf(e ast.Expr, method string) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && methodOf(call) == method
}

// methodOf returns the name of the called method or package function, "" for other calls.
func methodOf(call *ast.CallExpr) string {
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
		return sel.Sel.Name
	}
	return ""
}

func TestGoroutineRuleBites(t *testing.T) {
	for src, want := range map[string]int{
		"go f()":                                        1,
		"go func() { f() }()":                           1,
		"go func() { defer close(c); f() }()":           1,
		"go func() { defer p.Contain(`x`); f() }()":     0,
		"wg.Go(f)":                                      1,
		"wg.Go(func() { f() })":                         1,
		"p.Go(&wg, `x`, f)":                             0,
		"p.Keep(&wg, `x`, f)":                           0,
		"group.Go(p.Func(`x`, f))":                      0,
		"group.Go(func() error { go f(); return nil })": 2,
		"p.Go(nil, `x`, func() { go f() })":             1,
	} {
		if got := bareGoroutines(t, []byte("package p\nfunc g() {\n"+src+"\n}")); len(got) != want {
			t.Errorf("%s: %v, want %d", src, got, want)
		}
	}
}
