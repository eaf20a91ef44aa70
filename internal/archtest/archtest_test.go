// Package archtest tests which package may import which. ARCHITECTURE.md draws the same picture.
package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kubeweir/kubeweir/"

// listed is a package as `go list -json` describes it.
type listed struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
	Deps                               []string
	Error                              *struct{ Err string }
}

// arrow lists the packages of this module that packages below one folder may import, besides their
// own folder.
type arrow struct {
	from string   // folder
	to   []string // folders; empty: nothing
}

// base is what every package may import: vocabulary, helpers, and test helpers.
var base = []string{
	"internal/api", "internal/encoding", "internal/shard", "internal/object", "internal/reason", "internal/contain",
	"internal/apiservers", "internal/clusterprofile", "internal/credentials", "internal/defaults", "internal/flight",
	"internal/gaugefunc", "internal/inprocess", "internal/kubeconfig", "internal/kubenames",
	"internal/bubble", "internal/edgetest", "internal/rejectiontest", "internal/reviewtest", "internal/soak", "internal/writertest",
}

// above returns base and the given folders.
func above(folders ...string) []string { return slices.Concat(base, folders) }

// arrows are looked up by the longest folder that holds a package. A package below none of them is
// an error, so every new folder needs an entry.
var arrows = []arrow{
	{"internal/api", nil},
	// Encodings return positions in bytes; package object builds an Object from them.
	{"internal/encoding", []string{"internal/api"}},
	{"internal/shard", nil},
	{"internal/object", []string{"internal/api", "internal/encoding", "internal/shard"}},
	{"internal/reason", nil},
	{"internal/contain", nil},
	{"internal/archtest", nil},
	{"internal", base},
	{"watchmux", base},
	{"cache", above("watchmux")},
	{"cache/source", above("watchmux", "cache/form")},
	{"cache/store", above("watchmux")},
	{"cache/checkpoint", above("watchmux", "cache/form", "cache/source", "cache/store")},
	{"cache/reflector", above("watchmux", "cache/form", "cache/source", "cache/store", "cache/checkpoint")},
	{"cache/backfill", above("watchmux", "cache/source", "cache/store", "cache/reflector")},
	{"cache/selfcheck", above("watchmux", "cache/source", "cache/store", "cache/freshness", "cache/reflector")},
	{"cache/query", above("watchmux", "cache/source", "cache/store")},
	{"cache/read", above("watchmux", "cache/source", "cache/store", "cache/freshness", "cache/query", "cache/form")},
	{"cache/watch", above("watchmux", "cache/source", "cache/store", "cache/freshness", "cache/read", "cache/form")},
	{"cache/freshness", above("watchmux", "cache/source", "cache/store", "cache/reflector")},
	// Package form knows objects and their representations, not who stores or selects them.
	{"cache/form", above("watchmux")},
	{"cache/form/chunks", base},
	{"cache/form/derived", base},
	{"cache/form/pieces", []string{"internal/api"}},
	{"config", base},
	// The pages are embedded files.
	{"proxy/console/web", nil},
	// proxy sees the origin as it sees a remote cluster: through cache.Source, never by import.
	{"proxy", above("watchmux", "cache")},
	{"proxy/edge", base},
	{"proxy/edge/h1", above("proxy/edge")},
	{"proxy/edge/h2", above("proxy/edge")},
	{"proxy/edge/websocket", base},
	{"internal/edgetest", above("proxy/edge")},
	{"proxy/review", base},
	{"proxy/authn", above("proxy/review")},
	{"proxy/authz", above("proxy/review", "proxy/authn")},
	{"proxy/authz/responses", above("proxy/review", "proxy/authn", "proxy/authz", "proxy/inflight")},
	{"proxy/audit", base},
	{"proxy/tracing", base},
	{"proxy/inflight", base},
	{"proxy/healthz", base},
	{"proxy/clusters", above("proxy/inflight", "proxy/healthz")},
	{"proxy/policy", above("watchmux", "cache", "proxy/usage")},
	{"proxy/route", above("watchmux", "cache", "proxy/policy", "proxy/authn", "proxy/authz", "proxy/edge/websocket")},
	// An explanation looks at the parts of a gateway, and uses none of them.
	{"proxy/explain", above("cache", "proxy/authn", "proxy/authz", "proxy/consistency", "proxy/discovery", "proxy/healthz", "proxy/openapi", "proxy/policy", "proxy/response", "proxy/route")},
	// The console shows what the parts report about themselves.
	{"proxy/console", above("watchmux", "cache", "proxy")},
	{"proxy/usage", base},
	{"proxy/authz/rbac", above("watchmux", "cache", "proxy/authz", "proxy/discovery")},
	{"proxy/response", []string{"internal/api"}},
	{"proxy/consistency", above("watchmux", "cache", "proxy/response")},
	{"proxy/redact", base},
	{"proxy/openapi", above("cache", "watchmux", "proxy/consistency", "proxy/response")},
	{"proxy/discovery", above("watchmux", "cache", "proxy/upstream/health")},
	// The failure detector knows no requests, the pool only one server, the balancer no cache.
	{"proxy/upstream/health", nil},
	{"proxy/upstream/pool", above("proxy/upstream/health")},
	{"proxy/upstream/status", []string{"internal/encoding"}},
	{"proxy/upstream/rights", []string{"internal/api"}},
	{"proxy/upstream/header", []string{"internal/api", "proxy/upstream/pool"}},
	{"proxy/upstream/balance", above("proxy/upstream/health", "proxy/upstream/pool", "proxy/upstream/status")},
	{"origin", above("watchmux", "cache")},
	{"internal/app/recording", above("config", "proxy/audit")},
	// internal/app wires the parts together; so does, through it, the origin that users start in
	// their tests.
	{"internal/app", above("watchmux", "cache", "proxy", "origin", "config")},
	{"internal/envtest", above("config")},
	{"internal/backup", above("origin")},
	{"origin/origintest", []string{"internal/app", "config", "origin"}},
	{"cmd", above("watchmux", "cache", "proxy", "origin", "config", "internal/app", "internal/envtest", "internal/backup")},
	// deploy describes and packages kubeweir; it is not part of it.
	{"deploy", nil},
	{"test", above("watchmux", "cache", "proxy", "origin", "config", "internal/app", "cmd", "deploy")},
}

// fence determines which packages alone may import a library directly.
type fence struct {
	library string   // an import path and everything below it, or, with exact, only that package
	exact   bool     // for net/http: net/http/pprof and similar are fenced by it anyway
	allowed []string // folders
	tests   bool     // whether test files may import it anywhere
}

var fences = []fence{
	{library: "k8s.io/kubernetes", allowed: []string{"origin/builtin", "origin/aggregator", "test"}},
	// The transport benchmarks compare with its server; tests listen on its in-memory listener.
	{library: "github.com/valyala/fasthttp", allowed: []string{"proxy/edge/h1", "internal/edgetest", "test"}, tests: true},
	// The origin is an http.Handler built from Kubernetes' handlers.
	{library: "net/http", exact: true, allowed: []string{
		"internal/backup", "internal/credentials", "internal/edgetest", "internal/envtest", "internal/inprocess", "proxy/edge", "proxy/upstream", "proxy/admin", "proxy/audit", "proxy/console", "cmd", "test",
		"origin/server", "origin/fairness", "origin/aggregator", "origin/crd", "origin/builtin", "origin/internal", "origin/testapi",
	}, tests: true},
	// Spans are made in one place; the others see package tracing.
	{library: "go.opentelemetry.io", allowed: []string{"proxy/tracing", "test"}, tests: true},
	// Metrics are registered with the Registerer that was passed in, never with the global one.
	{library: "github.com/prometheus/client_golang/prometheus/promauto"},
}

// core is a set of folders whose packages must not import a library, not even indirectly.
type core struct {
	library string
	folders []string
	except  []string
}

var cores = []core{
	{"github.com/valyala/fasthttp", above("watchmux", "cache", "origin"), []string{"origin/origintest", "internal/edgetest"}},
	{"k8s.io/kubernetes", above("watchmux", "cache", "proxy", "config"), nil},
}

func TestImports(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Deps,Error", module+"...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var pkgs []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 5 {
		t.Fatalf("go list found %d packages", len(pkgs))
	}
	for _, p := range pkgs {
		for _, broken := range violations(p) {
			t.Errorf("%s %s", strings.TrimPrefix(p.ImportPath, module), broken)
		}
	}
}

// violations returns the rules that a package breaks.
func violations(p listed) []string {
	name, ok := strings.CutPrefix(p.ImportPath, module)
	if !ok {
		return nil // not a package of this module
	}
	var out []string
	if p.Error != nil && !strings.Contains(p.Error.Err, "build constraints exclude all Go files") {
		out = append(out, "cannot be listed: "+p.Error.Err)
	}
	out = append(out, brokenArrows(name, p)...)
	for _, f := range fences {
		if within(name, f.allowed) {
			continue
		}
		imports := p.Imports
		if !f.tests {
			imports = slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		}
		if i := slices.IndexFunc(imports, f.matches); i >= 0 {
			out = append(out, fmt.Sprintf("imports %s, which only %v may", imports[i], f.allowed))
		}
	}
	for _, c := range cores {
		i := slices.IndexFunc(p.Deps, func(dep string) bool { return within(dep, []string{c.library}) })
		if i >= 0 && within(name, c.folders) && !within(name, c.except) {
			out = append(out, fmt.Sprintf("depends on %s, directly or through other packages", p.Deps[i]))
		}
	}
	return out
}

func brokenArrows(name string, p listed) []string {
	rule, ok := ruleFor(name)
	if !ok {
		return []string{"has no place in the import rules"}
	}
	var out []string
	for _, path := range p.Imports {
		dep, ours := strings.CutPrefix(path, module)
		if ours && !within(dep, []string{rule.from}) && !within(dep, rule.to) {
			out = append(out, fmt.Sprintf("imports %s; packages of %s may import %v", dep, rule.from, rule.to))
		}
	}
	return out
}

func ruleFor(name string) (arrow, bool) {
	var best arrow
	for _, a := range arrows {
		if within(name, []string{a.from}) && len(a.from) > len(best.from) {
			best = a
		}
	}
	return best, best.from != ""
}

func (f fence) matches(path string) bool {
	return path == f.library || !f.exact && within(path, []string{f.library})
}

// within reports whether a path is one of the folders or below one.
func within(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool {
		return path == f || strings.HasPrefix(path, f+"/")
	})
}

// TestRulesBite makes sure that each rule can be violated.
func TestRulesBite(t *testing.T) {
	for _, tc := range []struct {
		name string
		pkg  listed
		want string // part of the violation; empty: none
	}{
		{"leaf imports nothing", listed{ImportPath: "internal/api", Imports: []string{module + "internal/object"}}, "internal/object"},
		{"down is fine", listed{ImportPath: "cache/cachetest", Imports: []string{module + "watchmux", module + "internal/api", module + "cache"}}, ""},
		{"a form does not see the cache", listed{ImportPath: "cache/form", Imports: []string{module + "cache/form/table", module + "cache"}}, "imports cache;"},
		{"up is not", listed{ImportPath: "watchmux", Imports: []string{module + "cache"}}, "imports cache"},
		{"proxy does not see the origin", listed{ImportPath: "proxy/edge", Imports: []string{module + "origin/builtin"}}, "origin/builtin"},
		{"the origin does not see what puts it together", listed{ImportPath: "origin/server", Imports: []string{module + "internal/app"}}, "imports internal/app"},
		{"nobody imports test", listed{ImportPath: "cmd/kubeweir", Imports: []string{module + "test/realkube"}}, "test/realkube"},
		{"a new folder", listed{ImportPath: "util"}, "no place"},
		{"a prefix is not a folder", listed{ImportPath: "cachet"}, "no place"},
		{"kubernetes in a test", listed{ImportPath: "cache", TestImports: []string{"k8s.io/kubernetes/pkg/printers"}}, "k8s.io/kubernetes"},
		{"kubernetes in its fence", listed{ImportPath: "origin/builtin", Imports: []string{"k8s.io/kubernetes/pkg/printers"}}, ""},
		{"kubernetes through another", listed{ImportPath: "proxy", Deps: []string{"k8s.io/kubernetes/pkg/printers"}}, "through other packages"},
		{"fasthttp above HTTP/1.1", listed{ImportPath: "proxy/edge", Imports: []string{"github.com/valyala/fasthttp"}}, "fasthttp"},
		{"fasthttp in HTTP/1.1", listed{ImportPath: "proxy/edge/h1", Imports: []string{"github.com/valyala/fasthttp"}}, ""},
		{"fasthttp through another", listed{ImportPath: "cache", Deps: []string{"github.com/valyala/fasthttp"}}, "through other packages"},
		{"net/http in the core", listed{ImportPath: "cache", Imports: []string{"net/http"}}, "net/http"},
		{"net/http in a core's test", listed{ImportPath: "cache", TestImports: []string{"net/http"}}, ""},
		{"httptest is no transport", listed{ImportPath: "cache", TestImports: []string{"net/http/httptest"}}, ""},
		{"global metrics", listed{ImportPath: "proxy/edge", Imports: []string{"github.com/prometheus/client_golang/prometheus/promauto"}}, "promauto"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.pkg.ImportPath = module + tc.pkg.ImportPath
			got := strings.Join(violations(tc.pkg), "\n")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("violations: %q, want %q", got, tc.want)
			}
		})
	}
}
