package conformance

import (
	"context"
	"regexp"
	"slices"
	"testing"

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

// allScenarios are those for servers of our own; the gateway, which only forwards writes, needs fewer.
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

// TestOracleWrites plays the scenarios for the standalone server through kube-apiserver twice: they must be what they
// say they are, and show nothing that two right servers may differ in.
func TestOracleWrites(t *testing.T) {
	t.Parallel()
	o := startOracle(t, realkube.Options{})
	do(t, o.Seed)
	ctx, oracle, itself := t.Context(), target(t, o.Target, false), target(t, o.Target, true)
	RunScenarios(ctx, t, o.Env, oracle, itself, "w", allScenarios(t, o))
}

// TestStandaloneOnSharedStore compares an API server of ours on kube-apiserver's own etcd with that kube-apiserver:
// both show the same state, so every byte of every read is compared, and what one writes the other reads.
func TestStandaloneOnSharedStore(t *testing.T) {
	t.Parallel()
	o := startOracle(t, realkube.Options{})
	do(t, o.Seed)
	ctx, oracle := t.Context(), target(t, o.Target, false)
	_, ours := startStandalone(t, o, realkube.StandaloneOptions{SharedStore: true})
	do(t, func(ctx context.Context) error { return Warm(ctx, o.Env, ours, must(t, o.Resources)) })
	do(t, o.Change)
	cases := must(t, o.Reads)
	unsettled := must(t, func(ctx context.Context) ([]string, error) {
		return Settle(ctx, o.Env, oracle, ours, must(t, o.Resources))
	})
	if len(unsettled) > 0 {
		t.Errorf("the standalone server does not show what kube-apiserver shows: %v", unsettled)
	}
	differs := func(name string) bool {
		return slices.ContainsFunc(knownDifferences, func(d difference) bool { return d.name.MatchString(name) })
	}
	compared := slices.DeleteFunc(cases, func(c Case) bool { return differs(c.Name) })
	t.Logf("%d reads compared", len(compared))
	RunReads(ctx, t, o.Env, oracle, ours, compared)
	RunLive(ctx, t, o.Env, oracle, ours, "live", slices.DeleteFunc(LiveCases(), func(l Live) bool { return differs(l.Name) }))
}

// A difference is one that a right answer may have, and why.
type difference struct {
	name   *regexp.Regexp // of the cases
	reason string
}

// knownDifferences are those of an API server of ours to kube-apiserver on the same store. What the two servers are set
// up with (addresses, keys, issuer, version) they cannot have in common.
var knownDifferences = []difference{
	{regexp.MustCompile(`^get/(version no number|negative version)`), "400, as lists are answered, for kube-apiserver's 500 (kubernetes#139485)"},
	{regexp.MustCompile(`^(discovery|error)/.*( /api$|version|trailing slash)`), "the server's own address and version"},
	{regexp.MustCompile(`^error/root`), "health checks that only one of them has"},
	{regexp.MustCompile(`^discovery//(version|openid|\.well-known)`), "the version, the issuer and its keys"},
	{regexp.MustCompile(`^discovery/(structured|text) (flagz|statusz v1)`), "kube-apiserver's flags are not ours: there is no /flagz, and /statusz does not list it"},
	{regexp.MustCompile(`^discovery/.*OpenAPI v3 by|^discovery//openapi/v3`), "ETags of documents that are equal (TestStandalone compares them)"},
	{regexp.MustCompile(`^discovery//apis/conf.example.com/v1$`), "kube-apiserver lists custom resources of a group in no order"},
	{regexp.MustCompile(`^(watch|socket)/(3|path,) too old`), "the store's words instead of the watch cache's"},
	{regexp.MustCompile(`^auth/65 impostor as (admin|bob in a group)`), "which of two refusals is told depends on what the user was permitted before"},
	{regexp.MustCompile(`^auth/77 TokenReview of a good token`), "the audience is the issuer"},
}

// TestStandalone compares writes, errors, definitions and apply with kube-apiserver's, each on a store of its own.
func TestStandalone(t *testing.T) {
	t.Parallel()
	o := startOracle(t, realkube.Options{})
	do(t, o.Seed)
	ctx, oracle := t.Context(), target(t, o.Target, false)
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
