package conformance

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// startTier starts a gateway in front of another gateway.
func startTier(t *testing.T, o *Oracle, upper *realkube.Gateway, args ...string) *realkube.Gateway {
	t.Helper()
	return startGatewayWith(t, o, realkube.GatewayOptions{Upstream: upper.URL(), ExtraArgs: args})
}

// TestTiers compares a gateway behind a gateway with the kube-apiserver behind both.
func TestTiers(t *testing.T) {
	t.Parallel()
	o := startOracle(t, realkube.Options{})
	ctx, oracle := t.Context(), target(t, o.Target, false)
	do(t, o.Seed)
	regional := startGateway(t, o)
	site, session := startTier(t, o, regional), startTier(t, o, regional, "--consistency", "session")
	do(t, func(ctx context.Context) error {
		return Warm(ctx, o.Env, gatewayTarget(t, o, site, false), must(t, o.Resources))
	})
	do(t, o.Change)
	cases := slices.DeleteFunc(near(must(t, o.Reads)), func(c Case) bool { return strings.HasPrefix(c.Name, "discovery/") })
	unsettled := must(t, func(ctx context.Context) ([]string, error) {
		return Settle(ctx, o.Env, oracle, gatewayTarget(t, o, site, false), must(t, o.Resources))
	})
	if len(unsettled) > 0 {
		t.Errorf("the lower gateway does not show the same as kube-apiserver: %v", unsettled)
	}
	t.Run("reads", func(t *testing.T) {
		RunReads(ctx, t, o.Env, oracle, gatewayTarget(t, o, site, true), cases)
	})
	t.Run("latest", func(t *testing.T) {
		RunReads(ctx, t, o.Env, oracle, gatewayTarget(t, o, site, false), everyOther(latest(cases)))
	})
	for source, least := range map[string]float64{"cached": 200, "revalidated": 50} {
		if n := responded(t, site, source); n < least {
			t.Errorf("only %v lists of the lower gateway were %s", n, source)
		}
	}
	t.Run("live", func(t *testing.T) {
		RunLive(ctx, t, o.Env, oracle, gatewayTarget(t, o, site, false), "live", LiveCases())
	})
	t.Run("written", func(t *testing.T) {
		RunScenarios(ctx, t, o.Env, oracle, gatewayTarget(t, o, session, true), "session", Scenarios())
	})
}

// everyOther returns every second case.
func everyOther(cases []Case) []Case {
	var out []Case
	for i := 0; i < len(cases); i += 2 {
		out = append(out, cases[i])
	}
	return out
}
