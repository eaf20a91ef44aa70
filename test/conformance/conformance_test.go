package conformance

import (
	"context"
	"net/url"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
)

func startOracle(t *testing.T, opts realkube.Options) *Oracle {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	opts.Dir = filepath.Join(t.TempDir(), "oracle")
	o, err := StartOracle(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

func startGateway(t *testing.T, o *Oracle, args ...string) *realkube.Gateway {
	t.Helper()
	return startGatewayWith(t, o, realkube.GatewayOptions{ExtraArgs: args})
}

func startGatewayWith(t *testing.T, o *Oracle, opts realkube.GatewayOptions) *realkube.Gateway {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	opts.ExtraArgs = append([]string{"--anonymous-auth"}, opts.ExtraArgs...)
	g, err := realkube.StartGatewayWith(ctx, o.Cluster, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if g.Panicked() {
			t.Errorf("the gateway panicked:\n%s", g.Log())
		} else if t.Failed() {
			t.Logf("the end of the gateway's log:\n%s", tail(g.Log()))
		}
		g.Close()
	})
	return g
}

func tail(log string) string {
	const size = 6000
	return log[max(0, len(log)-size):]
}

func target(t *testing.T, make func(http2 bool) (*Target, error), http2 bool) *Target {
	t.Helper()
	out, err := make(http2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	return out
}

func gatewayTarget(t *testing.T, o *Oracle, g *realkube.Gateway, http2 bool) *Target {
	t.Helper()
	return target(t, func(http2 bool) (*Target, error) { return o.Gateway(g, http2) }, http2)
}

func must[T any](t *testing.T, f func(context.Context) (T, error)) T {
	t.Helper()
	out, err := f(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func do(t *testing.T, f func(context.Context) error) {
	t.Helper()
	if err := f(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestOracle compares kube-apiserver with itself, over HTTP/1.1 and HTTP/2. The facts stated by the
// cases must hold, and the responses must be reproducible. It runs in the long form only: TestGateway
// checks the same facts, and a response that is not reproducible fails there, too.
func TestOracle(t *testing.T) {
	if !soak.Enabled() {
		t.Skip("TestGateway checks the same facts")
	}
	t.Parallel()
	o := startOracle(t, realkube.Options{})
	do(t, o.Seed)
	do(t, o.Change)
	cases := must(t, o.Reads)
	ctx, oracle, itself := t.Context(), target(t, o.Target, false), target(t, o.Target, true)
	t.Logf("%d reads, %d live watches, %d scenarios", len(cases), len(LiveCases()), len(Scenarios()))
	RunReads(ctx, t, o.Env, oracle, itself, cases)
	RunReads(ctx, t, o.Env, oracle, itself, twice(selfCases()))
	RunLive(ctx, t, o.Env, oracle, itself, "live", LiveCases())
	RunScenarios(ctx, t, o.Env, oracle, itself, "written", Scenarios())
}

// TestGateway compares gateways with the kube-apiserver behind them: one that started before the
// objects were created and received them by watches, one that listed them, one that serves
// most-recent reads and self reviews from memory, and two behind another gateway.
func TestGateway(t *testing.T) {
	t.Parallel()
	o := startOracle(t, realkube.Options{})
	ctx, oracle := t.Context(), target(t, o.Target, false)

	fed := startGateway(t, o)
	warm := func(g *realkube.Gateway) {
		do(t, func(ctx context.Context) error {
			return Warm(ctx, o.Env, gatewayTarget(t, o, g, false), must(t, o.Resources))
		})
	}
	warm(fed)
	do(t, o.Seed)
	listed, session := startGateway(t, o), startGateway(t, o, "--profile", "dashboard")
	site, siteSession := startTier(t, o, listed), startTier(t, o, listed, "--consistency", "session")
	for _, g := range []*realkube.Gateway{fed, listed, session, site} {
		warm(g) // the first has to discover the new resources
	}
	do(t, o.Change)
	cases := must(t, o.Reads)
	for _, g := range []*realkube.Gateway{fed, listed, session, site} {
		unsettled := must(t, func(ctx context.Context) ([]string, error) {
			return Settle(ctx, o.Env, oracle, gatewayTarget(t, o, g, false), must(t, o.Resources))
		})
		if len(unsettled) > 0 {
			t.Errorf("%s does not show the same as kube-apiserver: %v", g.URL(), unsettled)
		}
	}

	idle := StartIdle(ctx, o.Env, oracle, gatewayTarget(t, o, fed, false))

	t.Run("fed", func(t *testing.T) {
		RunReads(ctx, t, o.Env, oracle, gatewayTarget(t, o, fed, false), cases)
	})
	t.Run("latest", func(t *testing.T) {
		before := responded(t, fed, "revalidated")
		cases := latest(cases)
		RunReads(ctx, t, o.Env, oracle, gatewayTarget(t, o, fed, false), cases)
		n := responded(t, fed, "revalidated") - before
		t.Logf("%v of %d most-recent reads were served by revalidated lists", n, len(cases))
		if n < 100 {
			t.Errorf("only %v lists were revalidated", n)
		}
	})
	t.Run("listed", func(t *testing.T) {
		RunReads(ctx, t, o.Env, oracle, gatewayTarget(t, o, listed, true), near(cases))
	})
	t.Run("tier", func(t *testing.T) { testTier(ctx, t, o, oracle, site, cases) })
	t.Run("proxy", func(t *testing.T) { testFrontProxy(ctx, t, o, oracle, gatewayTarget(t, o, fed, false)) })
	t.Run("session", func(t *testing.T) {
		gateway := gatewayTarget(t, o, session, false)
		RunReads(ctx, t, o.Env, oracle, gateway, loosened(near(cases)))
		RunScenarios(ctx, t, o.Env, oracle, gateway, "session", Scenarios())
	})
	t.Run("self", func(t *testing.T) {
		gateway := gatewayTarget(t, o, session, false)
		RunReads(ctx, t, o.Env, oracle, gateway, twice(selfCases()))
		RunReads(ctx, t, o.Env, oracle, gateway, twice(discoveryCases(o.Env)))
		m := must(t, session.Metrics)
		n := m.Sum("kubeweir_requests_total", map[string]string{"verb": "create", "group": "authorization.k8s.io", "source": "cached"})
		if n < 40 {
			t.Errorf("only %v self reviews were served from memory", n)
		}
	})
	t.Run("live", func(t *testing.T) {
		RunLive(ctx, t, o.Env, oracle, gatewayTarget(t, o, fed, false), "live", LiveCases())
		RunLive(ctx, t, o.Env, oracle, gatewayTarget(t, o, listed, true), "multiplexed", LiveCases())
		RunLive(ctx, t, o.Env, oracle, gatewayTarget(t, o, site, false), "tier-live", LiveCases())
	})
	t.Run("written", func(t *testing.T) {
		RunScenarios(ctx, t, o.Env, oracle, gatewayTarget(t, o, fed, true), "written", Scenarios())
		RunScenarios(ctx, t, o.Env, oracle, gatewayTarget(t, o, siteSession, true), "tier-session", Scenarios())
	})
	t.Run("socket/body of the handshake", func(t *testing.T) {
		testHandshakeBody(ctx, t, o, oracle, gatewayTarget(t, o, fed, false))
	})
	t.Run("idle/5 bookmarks", idle)
}

// latest returns the reads at resourceVersion=0 as reads of the most recent state.
func latest(cases []Case) []Case {
	var out []Case
	for _, c := range cases {
		u, err := url.Parse(c.Path)
		if err != nil || c.Watch || c.want() != 200 || u.RawQuery == "" {
			continue
		}
		query := u.Query()
		if query.Get("resourceVersion") != "0" || query.Has("watch") || query.Has("resourceVersionMatch") {
			continue
		}
		query.Del("resourceVersion")
		u.RawQuery = query.Encode()
		c.Path, c.Version, c.WantText, c.Then = u.String(), SameVersion, nil, nil
		out = append(out, c)
	}
	return out
}

// responded returns the number of lists that g served from a source.
func responded(t *testing.T, g *realkube.Gateway, source string) float64 {
	t.Helper()
	m := must(t, g.Metrics)
	return m.Sum("kubeweir_requests_total", map[string]string{"verb": "list", "source": source})
}

// near returns the cases for a server that does not have the whole history of the objects.
func near(cases []Case) []Case {
	return slices.DeleteFunc(slices.Clone(cases), func(c Case) bool { return c.Far })
}

// loosened returns the cases for a server that serves most-recent reads from a cache, so that its
// versions may differ.
func loosened(cases []Case) []Case {
	out := make([]Case, len(cases))
	for i, c := range cases {
		if u, err := url.Parse(c.Path); err == nil && u.Query().Get("resourceVersion") == "" {
			c.Version = AnyVersion
		}
		out[i] = c
	}
	return out
}
