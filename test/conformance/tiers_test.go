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

// testTier compares reads of a gateway behind a gateway with the kube-apiserver behind both.
func testTier(ctx context.Context, t *testing.T, o *Oracle, oracle *Target, site *realkube.Gateway, cases []Case) {
	cases = slices.DeleteFunc(near(cases), func(c Case) bool { return strings.HasPrefix(c.Name, "discovery/") })
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
}

// everyOther returns every second case.
func everyOther(cases []Case) []Case {
	var out []Case
	for i := 0; i < len(cases); i += 2 {
		out = append(out, cases[i])
	}
	return out
}
