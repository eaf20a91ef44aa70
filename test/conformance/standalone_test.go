package conformance

import (
	"context"
	"slices"
	"testing"

	"github.com/kubeweir/kubeweir/test/realkube"
)

func startStandalone(t *testing.T, o *Oracle, opts realkube.StandaloneOptions) (*realkube.Standalone, *Target) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
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
	out := target(t, func(http2 bool) (*Target, error) { return o.target("standalone", s.URL(), http2) }, false)
	out.WithoutPriority = true
	return s, out
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
	o := startOracle(t, realkube.Options{})
	do(t, o.Seed)
	ctx, oracle, itself := t.Context(), target(t, o.Target, false), target(t, o.Target, true)
	RunScenarios(ctx, t, o.Env, oracle, itself, "w", allScenarios(t, o))
}

// TestStandaloneOnSharedStore compares an API server of ours on kube-apiserver's own etcd with that kube-apiserver:
// both show the same state, so every byte of every read is compared, and what one writes the other reads.
func TestStandaloneOnSharedStore(t *testing.T) {
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
	RunReads(ctx, t, o.Env, oracle, ours, cases)
	RunLive(ctx, t, o.Env, oracle, ours, "live", LiveCases())
}

// TestStandalone compares writes, errors, definitions and apply with kube-apiserver's, each on a store of its own.
func TestStandalone(t *testing.T) {
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
