package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/proxy/tracing/tracingtest"
	"github.com/kubeweir/kubeweir/test/realkube"
)

const (
	allSampled = 1_000_000
	// clientTrace is the trace of the parent that a client names.
	clientTrace  = "0af7651916cd43dd8448eb211c80319c"
	clientParent = "00-" + clientTrace + "-b7ad6b7169203331-01"
)

// tracedRequests are the requests whose spans are compared. The names of objects are free.
var tracedRequests = []string{
	"GET /api/v1/namespaces/default/configmaps/x",
	"GET /api/v1/namespaces/default/configmaps/x?resourceVersion=0",
	"GET /api/v1/configmaps?resourceVersion=0",
	"GET /api/v1/configmaps",
	"GET /api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dx",
	"GET /api/v1/namespaces/default",
	"GET /apis/apps/v1/namespaces/default/deployments/x/scale",
	"DELETE /api/v1/namespaces/default/configmaps/x",
	"POST /api/v1/namespaces/default/configmaps",
	"GET /api/v1/configmaps?watch=true&resourceVersion=0&timeoutSeconds=1",
	"GET /apis", "GET /version", "GET /openapi/v2", "GET /api/v1/namespaces/default/nothing",
}

// traced is a server whose spans a collector receives.
type traced struct {
	service   string
	collector *tracingtest.Collector
	configFor func(token string) *rest.Config
}

// send sends a request as a user, with an own user agent, and waits for the server's span.
func (s *traced) send(ctx context.Context, t *testing.T, line, token, agent string) tracingtest.Span {
	t.Helper()
	s.sendOnly(ctx, t, line, token, agent)
	return s.span(ctx, t, agent)
}

// sendOnly does not wait for the span.
func (s *traced) sendOnly(ctx context.Context, t *testing.T, line, token, agent string) {
	t.Helper()
	cfg := s.configFor(token)
	c, err := rest.HTTPClientFor(cfg)
	must(t, err)
	defer c.CloseIdleConnections()
	method, target, _ := strings.Cut(line, " ")
	req, err := http.NewRequestWithContext(ctx, method, cfg.Host+target, http.NoBody)
	must(t, err)
	req.Header.Set("User-Agent", agent)
	req.Header.Set("Traceparent", clientParent)
	resp, err := c.Do(req)
	must(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	must(t, errors.Join(err, resp.Body.Close()))
}

// span waits for the server's span of the request with a user agent.
func (s *traced) span(ctx context.Context, t *testing.T, agent string) (span tracingtest.Span) {
	t.Helper()
	eventually(ctx, t, waitTimeout, func() error {
		for _, span = range s.collector.Spans() {
			if span.Service == s.service && span.Attributes["user_agent.original"] == agent && span.Attributes["audit-id"] != "" {
				return nil
			}
		}
		return fmt.Errorf("no span of %s for %s", s.service, agent)
	})
	return span
}

// TestTracesLikeKubeAPIServer compares the spans of the gateway, and of the standalone, with those of
// kube-apiserver with the same configuration.
func TestTracesLikeKubeAPIServer(t *testing.T) {
	ctx := deadline(t, 2*waitTimeout)
	collector, own := tracingtest.New(t), tracingtest.New(t)
	flag := "--tracing-config-file=" + collector.ConfigFile(t, allSampled)
	cluster, err := realkube.Start(ctx, realkube.Options{ExtraArgs: []string{flag}})
	must(t, err)
	t.Cleanup(func() { _ = cluster.Close() })
	g, err := realkube.StartGatewayWith(ctx, cluster, realkube.GatewayOptions{Path: bed.Program, ExtraArgs: []string{flag}})
	must(t, err)
	t.Cleanup(g.Close)
	lone := startStandalone(t, "--tracing-config-file="+own.ConfigFile(t, allSampled))
	admin, err := lone.AdminConfig()
	must(t, err)
	standalone := &traced{"apiserver", own, func(string) *rest.Config { return rest.CopyConfig(admin) }}
	real := &traced{"apiserver", collector, cluster.ConfigFor}
	for name, ours := range map[string]*traced{
		"gateway":    {"kubeweir-gateway", collector, g.ConfigFor},
		"standalone": standalone,
	} {
		agents := func(i int) (string, string) {
			return fmt.Sprintf("%s-%d", name, i), fmt.Sprintf("instead-of-%s-%d", name, i)
		}
		for i, line := range tracedRequests { // spans are sent every few seconds
			agent, instead := agents(i)
			ours.sendOnly(ctx, t, line, cluster.AdminToken(), agent)
			real.sendOnly(ctx, t, line, cluster.AdminToken(), instead)
		}
		for i, line := range tracedRequests {
			agent, instead := agents(i)
			got, want := ours.span(ctx, t, agent), real.span(ctx, t, instead)
			if got.Name != want.Name || got.Parent != want.Parent || got.Trace != clientTrace || want.Trace != clientTrace {
				t.Errorf("%s: %s\n%+v\nwant\n%+v", name, line, got, want)
			}
			maps.DeleteFunc(got.Attributes, func(key, _ string) bool { return strings.HasPrefix(key, "kubeweir.") })
			gotKeys, wantKeys := slices.Sorted(maps.Keys(got.Attributes)), slices.Sorted(maps.Keys(want.Attributes))
			if !slices.Equal(gotKeys, wantKeys) {
				t.Errorf("%s: %s: attributes\n%v\nwant\n%v", name, line, got.Attributes, want.Attributes)
			}
			for _, key := range []string{"http.target", "url.path", "http.request.method", "url.scheme", "network.protocol.version"} {
				if got.Attributes[key] != want.Attributes[key] {
					t.Errorf("%s: %s: %s is %q, want %q", name, line, key, got.Attributes[key], want.Attributes[key])
				}
			}
		}
	}
	checkForwarded(ctx, t, cluster, &traced{"kubeweir-gateway", collector, g.ConfigFor}, real)
	checkOwnChildren(ctx, t, standalone)
}

// checkForwarded: the spans of both servers for a forwarded request belong together, and clients
// without the right to choose their trace do not.
func checkForwarded(ctx context.Context, t *testing.T, cluster *realkube.Cluster, gateway, real *traced) {
	t.Helper()
	const line = "DELETE /api/v1/namespaces/default/configmaps/x"
	front := gateway.send(ctx, t, line, cluster.AdminToken(), "forwarded-admin")
	eventually(ctx, t, waitTimeout, func() error {
		for _, s := range gateway.collector.Spans() {
			if s.Service == "apiserver" && s.Parent == front.ID && s.Trace == front.Trace && s.Name == front.Name && s.Attributes["audit-id"] == front.Attributes["audit-id"] {
				return nil
			}
		}
		return errors.New("no span of kube-apiserver below that of the gateway")
	})
	// kube-apiserver trusts the client as little as the gateway does, and links to the gateway's span.
	front = gateway.send(ctx, t, line, cluster.Token(realkube.Alice), "forwarded-alice")
	if front.Parent != "" || front.Trace == clientTrace || !slices.Equal(front.Linked, []string{clientTrace}) {
		t.Errorf("the trace of a client that may not choose it: %+v", front)
	}
	if back := real.span(ctx, t, "forwarded-alice"); back.Parent != "" || !slices.Equal(back.Linked, []string{front.Trace}) {
		t.Errorf("kube-apiserver's span: %+v", back)
	}
}

// checkOwnChildren: the API server's own spans are below that of the request.
func checkOwnChildren(ctx context.Context, t *testing.T, s *traced) {
	t.Helper()
	front := s.send(ctx, t, "DELETE /api/v1/namespaces/default/configmaps/x", "", "own-children")
	eventually(ctx, t, waitTimeout, func() error {
		for _, child := range s.collector.Spans() {
			if child.Parent == front.ID && child.Name == "Delete" {
				return nil
			}
		}
		return errors.New("no span Delete below the request's")
	})
}

// TestTracingIsBounded: with a collector that cannot be reached, requests are served and the gateway
// ends; with a sampling rate of 0, no client but an administrator gets a span.
func TestTracingIsBounded(t *testing.T) {
	ctx := deadline(t, 2*waitTimeout)
	collector := tracingtest.New(t)
	g := startGateway(t, "--tracing-config-file="+collector.ConfigFile(t, 0))
	s := &traced{"kubeweir-gateway", collector, g.ConfigFor}
	for range 3 {
		s.sendOnly(ctx, t, "GET /version", kube.Token(realkube.Alice), "alice")
	}
	s.send(ctx, t, "GET /api/v1/configmaps", kube.AdminToken(), "admin")
	for _, span := range collector.Spans() {
		if span.Attributes["user_agent.original"] == "alice" {
			t.Errorf("a client forced sampling: %+v", span)
		}
	}
	collector.Endpoint = "127.0.0.1:1"
	down := startGateway(t, "--tracing-config-file="+collector.ConfigFile(t, allSampled), "--shutdown-drain=0s")
	s.configFor = down.ConfigFor
	s.sendOnly(ctx, t, "GET /version", kube.AdminToken(), "down")
	must(t, down.Stop(ctx))
}
