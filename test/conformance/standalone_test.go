package conformance

import (
	"context"
	"regexp"
	"slices"
	"testing"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
)

func startStandalone(t *testing.T, o *Oracle, opts realkube.StandaloneOptions) (*realkube.Standalone, *Target) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	opts.Cluster, opts.Dir = o.Cluster, t.TempDir()
	s, err := realkube.StartStandalone(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log:\n%s", tail(s.Log()))
		}
		s.Close()
	})
	return s, target(t, func(http2 bool) (*Target, error) { return o.Standalone(s, http2) }, false)
}

// allScenarios returns the scenarios for servers that implement the whole API. Gateways need fewer,
// because they only forward writes.
func allScenarios(t *testing.T, o *Oracle) []Scenario {
	t.Helper()
	types, err := TypeScenarios(o.Cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	documents, err := DiscoveryScenarios(o.Cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(documents, Scenarios(), OriginScenarios(), types)
	requests := 0
	for _, s := range all {
		requests += len(s.Steps)
	}
	t.Logf("%d scenarios, %d requests", len(all), requests)
	return all
}

// TestOracleWrites runs the scenarios of the standalone server through kube-apiserver twice. The
// facts that they state must hold, and the responses must not differ. It runs in the long form only:
// TestStandalone checks the same facts, and a response that is not reproducible fails there, too.
func TestOracleWrites(t *testing.T) {
	if !soak.Enabled() {
		t.Skip("TestStandalone checks the same facts")
	}
	t.Parallel()
	o := startOracle(t, realkube.Options{})
	do(t, o.Seed)
	ctx, oracle, itself := t.Context(), target(t, o.Target, false), target(t, o.Target, true)
	RunScenarios(ctx, t, o.Env, oracle, itself, "w", allScenarios(t, o))
}

// testSharedStore compares a standalone server on kube-apiserver's etcd with that kube-apiserver.
// Both show the same state, so all bytes of every read are compared, and each server reads what the
// other writes.
func testSharedStore(ctx context.Context, t *testing.T, o *Oracle, oracle *Target) {
	_, ours := startStandalone(t, o, realkube.StandaloneOptions{SharedStore: true})
	do(t, func(ctx context.Context) error { return Warm(ctx, o.Env, ours, must(t, o.Resources)) })
	do(t, o.Change)
	cases := must(t, o.Reads)
	unsettled := must(t, func(ctx context.Context) ([]string, error) {
		return Settle(ctx, o.Env, oracle, ours, must(t, o.Resources))
	})
	if len(unsettled) > 0 {
		t.Errorf("the standalone server does not show the same as kube-apiserver: %v", unsettled)
	}
	differs := func(name string) bool {
		return slices.ContainsFunc(knownDifferences, func(d difference) bool { return d.name.MatchString(name) })
	}
	compared := slices.DeleteFunc(cases, func(c Case) bool { return differs(c.Name) })
	t.Logf("%d reads compared", len(compared))
	RunReads(ctx, t, o.Env, oracle, ours, compared)
	RunLive(ctx, t, o.Env, oracle, ours, "live", slices.DeleteFunc(LiveCases(), func(l Live) bool { return differs(l.Name) }))
}

// A difference is a legitimate difference and its reason.
type difference struct {
	name   *regexp.Regexp // of the cases
	reason string
}

// knownDifferences are the differences of a standalone server to kube-apiserver on the same store.
// The settings of the two servers (addresses, keys, issuer, version) necessarily differ.
var knownDifferences = []difference{
	{regexp.MustCompile(`^get/(version no number|negative version)`), "400, as for lists, instead of kube-apiserver's 500 (kubernetes#139485)"},
	{regexp.MustCompile(`^(discovery|error)/.*( /api$|version|trailing slash)`), "the server's own address and version"},
	{regexp.MustCompile(`^error/root`), "health checks that only one of them has"},
	{regexp.MustCompile(`^discovery//(version|openid|\.well-known)`), "the version, the issuer and its keys"},
	{regexp.MustCompile(`^discovery/structured (flagz v1|statusz v1)`), "each server's own flags and start time"},
	{regexp.MustCompile(`^discovery/.*OpenAPI v3 by|^discovery//openapi/v3`), "ETags of documents that are equal (TestStandalone compares them)"},
	{regexp.MustCompile(`^discovery//apis/conf.example.com/v1$`), "kube-apiserver lists custom resources of a group in no order"},
	{regexp.MustCompile(`^(watch|socket)/(3|path,) too old`), "the message of the store instead of the watch cache"},
	{regexp.MustCompile(`^auth/65 impostor as (admin|bob in a group)`), "which of two rejections is returned depends on earlier permitted requests of the user"},
	{regexp.MustCompile(`^auth/77 TokenReview of a good token`), "the audience is the issuer"},
}

// TestStandalone compares a standalone server with kube-apiserver: reads of the same store, then
// writes, errors, definitions and apply, each on its own store.
func TestStandalone(t *testing.T) {
	t.Parallel()
	o := startOracle(t, realkube.Options{})
	do(t, o.Seed)
	ctx, oracle := t.Context(), target(t, o.Target, false)
	t.Run("shared store", func(t *testing.T) { testSharedStore(ctx, t, o, oracle) })
	s, ours := startStandalone(t, o, realkube.StandaloneOptions{})
	do(t, func(ctx context.Context) error {
		cfg, err := s.AdminConfig()
		if err != nil {
			return err
		}
		return SeedObjects(ctx, cfg)
	})
	RunScenarios(ctx, t, o.Env, oracle, ours, "w", allScenarios(t, o))
}
