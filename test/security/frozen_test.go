package security

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// rejectGateway rejects the gateway's requests like a kube-apiserver that has not read its RBAC
// objects yet.
func rejectGateway(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Authorization") != "Bearer "+kube.Token(realkube.GatewayUser) {
		return false
	}
	what := `cannot create resource`
	if r.Header.Get("Impersonate-User") != "" {
		what = `cannot impersonate resource`
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,`+
		`"message":"x is forbidden: User \"%s\" %s \"y\""}`, realkube.GatewayUser, what)
	return true
}

// TestGatewayIdentityIsNotDisclosed checks that clients do not see error messages of the upstream
// about the gateway's own permissions, for example while kube-apiserver loads its RBAC objects.
func TestGatewayIdentityIsNotDisclosed(t *testing.T) {
	f := newFaultyUpstream(t)
	g := startGatewayAt(t, f.url)
	ctx := deadline(t, time.Minute)
	bob, err := kube.IssueClientCert("bob", "system:masters")
	must(t, err)
	const pods = "/api/v1/namespaces/default/pods"
	known := kube.AdminToken()
	if a := do(ctx, t, g.URL(), known, "GET", pods, ""); a.status != 200 {
		t.Fatal(a)
	}
	f.insteadOf(rejectGateway)
	raw := func(head string) response {
		return roundTrip(t, dial(t, g.URL(), &bob, "http/1.1"), head+" HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	for name, a := range map[string]response{
		"a token to be reviewed":      do(ctx, t, g.URL(), kube.Token(realkube.Jane), "GET", pods, ""),
		"a right to be reviewed":      do(ctx, t, g.URL(), known, "GET", "/api/v1/namespaces/kube-system/pods", ""),
		"a right of a certificate":    raw("GET " + pods),
		"a write by a certificate":    raw("DELETE " + pods + "/none"),
		"a watch in a client's name":  raw("GET " + pods + "?watch=1&allowWatchBookmarks=maybe"),
		"discovery by a certificate":  raw("GET /apis"),
		"impersonation to be decided": raw("GET " + pods + " HTTP/1.1\r\nImpersonate-User: alice\r\nX:"),
	} {
		if a.status != 503 || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %s, Retry-After: %q; want 503 with Retry-After", name, a, a.header.Get("Retry-After"))
		}
		if strings.Contains(a.String(), realkube.GatewayUser) || strings.Contains(fmt.Sprint(a.header), realkube.GatewayUser) {
			t.Errorf("%s: the response discloses the gateway's identity: %s", name, a)
		}
	}
	// The gateway then sends coalesced requests with the client's own credentials.
	if a := do(ctx, t, g.URL(), known, "GET", pods, ""); a.status != 200 && a.status != 503 || strings.Contains(a.body, realkube.GatewayUser) {
		t.Errorf("strict list: %s", a)
	}
	f.insteadOf(nil)
	poll(ctx, t, "answers again", func() bool { return raw("GET "+pods).status == 200 })
}

// try sends a request that may fail. It returns the status, whether there was a Retry-After header,
// and the duration.
func try(ctx context.Context, t *testing.T, g *realkube.Gateway, token, method, path, body string) (status int, again bool, took time.Duration) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig(t, nil), ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, g.URL()+path, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return 0, false, time.Since(began)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("Retry-After") != "", time.Since(began)
}

// TestFrozenUpstreamHoldsNobody checks that a frozen upstream delays requests in flight no longer
// than configured, and later requests not at all.
func TestFrozenUpstreamHoldsNobody(t *testing.T) {
	for _, mode := range []string{"strict", "session"} {
		t.Run(mode, func(t *testing.T) {
			f := newFaultyUpstream(t)
			g := startGatewayAt(t, f.url, "--upstream-silence-timeout=1s", "--review-timeout=2s", "--consistency="+mode)
			ctx := deadline(t, 90*time.Second)
			token := kube.AdminToken()
			const maps = "/api/v1/namespaces/default/configmaps"
			if a := do(ctx, t, g.URL(), token, "GET", maps, ""); a.status != 200 {
				t.Fatal(a)
			}
			f.freeze(true)
			// Far above the setting, for slow machines, and far below the minute that it once took.
			const most = 20 * time.Second
			var requests sync.WaitGroup
			for _, r := range []struct{ token, method, path, body string }{
				{token, "GET", maps, ""},
				{token, "GET", maps + "/kube-root-ca.crt", ""},
				{token, "GET", "/api/v1/nodes", ""},
				{token, "GET", "/version", ""},
				{token, "POST", maps, `{"metadata":{"name":"frozen"}}`},
				{kube.Token(realkube.Jane), "GET", maps + "?resourceVersion=0", ""},
			} {
				requests.Go(func() {
					status, _, took := try(ctx, t, g, r.token, r.method, r.path, r.body)
					// A session read may be served from the cache.
					if status != 503 && status != 504 && !(mode == "session" && status == 200) || took > most {
						t.Errorf("%s %s: %d after %v", r.method, r.path, status, took)
					}
				})
			}
			requests.Wait()
			for range 20 {
				if status, again, took := try(ctx, t, g, token, "DELETE", maps+"/none", ""); status != 503 || !again || took > most {
					t.Fatalf("with an unreachable upstream: %d after %v, Retry-After: %v", status, took, again)
				}
			}
			f.freeze(false)
			poll(ctx, t, "answers again", func() bool {
				status, _, _ := try(ctx, t, g, token, "GET", maps, "")
				return status == 200
			})
		})
	}
}

// TestMadeUpTokensDelayNobody checks that a flood of invalid tokens takes neither token reviews,
// nor slots, nor access reviews from clients with known tokens.
func TestMadeUpTokensDelayNobody(t *testing.T) {
	f := newFaultyUpstream(t)
	g := startGatewayAt(t, f.url, "--authentication-token-ttl=1ms", "--max-requests-inflight=400")
	ctx := deadline(t, 90*time.Second)
	token := kube.AdminToken()
	const maps = "/api/v1/namespaces/default/configmaps"
	if a := do(ctx, t, g.URL(), token, "GET", maps, ""); a.status != 200 {
		t.Fatal(a)
	}
	// The upstream never finishes the reviews of the made-up tokens.
	release := make(chan struct{})
	defer close(release)
	var mu sync.Mutex
	reviews, most := 0, 0
	f.insteadOf(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			return false
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if !strings.Contains(string(body), "made-up") {
			return false
		}
		mu.Lock()
		reviews++
		most = max(most, reviews)
		mu.Unlock()
		select {
		case <-release:
		case <-r.Context().Done():
		}
		mu.Lock()
		reviews--
		mu.Unlock()
		return true
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig(t, nil), ForceAttemptHTTP2: true}}
	flood, stop := context.WithCancel(ctx)
	var strangers sync.WaitGroup
	sentAway := make(chan struct{}, 300)
	for i := range 300 {
		strangers.Go(func() {
			req, _ := http.NewRequestWithContext(flood, http.MethodGet, g.URL()+maps, nil)
			req.Header.Set("Authorization", fmt.Sprintf("Bearer made-up-%d", i))
			if resp, err := client.Do(req); err == nil {
				if resp.StatusCode == 429 && resp.Header.Get("Retry-After") != "" {
					sentAway <- struct{}{}
				}
				_ = resp.Body.Close()
			}
		})
	}
	defer func() { stop(); strangers.Wait(); client.CloseIdleConnections() }()
	poll(ctx, t, "strangers sent away", func() bool { return len(sentAway) > 150 })
	for i := range 10 { // this reviews the token each time, and the permission for each name
		if a := do(ctx, t, g.URL(), token, "GET", fmt.Sprintf("%s/none-%d", maps, i), ""); a.status != 404 {
			t.Fatalf("client with a known token: %s", a)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most > 8 {
		t.Errorf("%d concurrent reviews of unknown tokens, want at most 8", most)
	}
}

// TestBadCertificatesCostLittle checks that the gateway does not verify a long certificate chain,
// but responds with 401 to each request on the connection.
func TestBadCertificatesCostLittle(t *testing.T) {
	g := startGateway(t)
	other, err := kube.IssueFrontProxyCert() // its CA is for proxies, not for clients
	must(t, err)
	pair, err := tls.X509KeyPair(other.CertPEM, other.KeyPEM)
	must(t, err)
	for range 20 { // a leaf and 20 more
		pair.Certificate = append(pair.Certificate, pair.Certificate[0])
	}
	cfg := tlsConfig(t, nil, "http/1.1")
	cfg.Certificates = []tls.Certificate{pair}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(g.URL(), "https://"), cfg)
	must(t, err)
	defer func() { _ = conn.Close() }()
	for range 5 {
		if a := roundTrip(t, conn, "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n"); a.status != 401 {
			t.Errorf("chain of 21 certificates: %s", a)
		}
	}
}
