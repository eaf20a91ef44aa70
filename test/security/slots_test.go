package security

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestBodyThatNeverComesDoesNotStopOthers checks that requests whose announced body never arrives
// hold slots only until a timeout, and never all slots, over HTTP/1.1 and HTTP/2.
func TestBodyThatNeverComesDoesNotStopOthers(t *testing.T) {
	g := startGateway(t, "--max-requests-inflight", "40", "--upstream-request-timeout", "3s")
	ctx := deadline(t, time.Minute)
	const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	alice := kube.Token(realkube.Alice)
	held := func() float64 {
		m, err := g.Metrics(ctx)
		must(t, err)
		return m.Sum("kubeweir_requests_in_flight", map[string]string{"kind": "short"})
	}
	for range 10 {
		_, err := fmt.Fprintf(dial(t, g.URL(), nil, "http/1.1"), "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n", path, alice)
		must(t, err)
	}
	c := dialFrames(t, g.URL())
	for range 100 {
		c.request("POST", path, alice, true, "content-type", "application/json", "content-length", "10")
	}
	poll(ctx, t, "alice has her share", func() bool { return held() >= 30 })
	if a := do(ctx, t, g.URL(), kube.AdminToken(), "GET", "/api/v1/namespaces?limit=1", ""); a.status != 200 {
		t.Errorf("request of another user: %s", a)
	}
	poll(ctx, t, "the places are free again", func() bool { return held() == 0 })
	if a := do(ctx, t, g.URL(), alice, "GET", "/api", ""); a.status != 200 {
		t.Errorf("request afterwards: %s", a)
	}
}

// TestOneUserCannotTakeAllWatches checks that the open watches of one user leave room for others.
func TestOneUserCannotTakeAllWatches(t *testing.T) {
	g := startGateway(t, "--max-watches", "20")
	ctx := deadline(t, time.Minute)
	c := dialFrames(t, g.URL())
	for range 40 {
		c.request("GET", "/api/v1/namespaces?watch=1&timeoutSeconds=30", kube.AdminToken(), false)
	}
	counts := map[string]int{}
	for range 40 {
		if !c.until(func(frame http2.Frame) bool { counts[status(frame)]++; return status(frame) != "" }) {
			t.Fatal("the connection ended")
		}
	}
	if counts["200"] != 15 || counts["429"] != 25 {
		t.Errorf("statuses %v, want 15 watches and 25 rejections", counts)
	}
	other := kube.Token(realkube.GatewayUser)
	if a := do(ctx, t, g.URL(), other, "GET", "/api/v1/namespaces?watch=1&timeoutSeconds=1", ""); a.status != 200 {
		t.Errorf("watch of another user: %s", a)
	}
}

// TestClosedWindowDoesNotHoldStreams checks that the gateway resets the streams of a client that
// never opens its flow-control window, whatever the response and whether or not the client is
// authenticated.
func TestClosedWindowDoesNotHoldStreams(t *testing.T) {
	g := startGateway(t, "--write-timeout", "1s")
	deadline(t, time.Minute)
	c := dialFrames(t, g.URL(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	ids := map[uint32]string{}
	for _, path := range []string{"/version", "/api/v1/namespaces?resourceVersion=0", "/api/v1/namespaces", "/no/such/path", "/healthz"} {
		ids[c.request("GET", path, kube.AdminToken(), false)] = path
	}
	unauthenticated := c.request("GET", "/api", "nobody's", false)
	ids[unauthenticated] = "401"
	for len(ids) > 0 {
		if !c.until(func(frame http2.Frame) bool {
			_, reset := frame.(*http2.RSTStreamFrame)
			if reset {
				delete(ids, frame.Header().StreamID)
			}
			return reset
		}) {
			t.Fatalf("the connection ended before %v", ids)
		}
	}
}

// TestUnauthenticatedHTTP2IsClosed checks that the gateway closes HTTP/2 connections of
// unauthenticated clients after the response, as kube-apiserver does.
func TestUnauthenticatedHTTP2IsClosed(t *testing.T) {
	g := startGateway(t, "--anonymous-auth")
	deadline(t, time.Minute)
	for _, token := range []string{"nobody's", ""} {
		c := dialFrames(t, g.URL())
		c.request("GET", "/api/v1/pods", token, false)
		goAway := false
		c.until(func(frame http2.Frame) bool {
			goAway = goAway || frame.Header().Type == http2.FrameGoAway
			return false
		})
		if !goAway {
			t.Errorf("token %q: no GOAWAY", token)
		}
	}
	c := dialFrames(t, g.URL())
	for range 2 {
		c.request("GET", "/api", kube.AdminToken(), false)
		if !c.until(func(frame http2.Frame) bool { return status(frame) == "200" }) {
			t.Error("the connection of an authenticated client was closed")
		}
	}
}

// poll waits until done returns true, and fails the test if ctx ends first.
func poll(ctx context.Context, t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("timeout waiting until %s", what)
		}
	}
}
