package security

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// fill creates a namespace with n ConfigMaps at kube-apiserver, and deletes it at the end of the
// test.
func fill(ctx context.Context, t *testing.T, namespace string, n int) {
	t.Helper()
	admin := func(method, path, body string) {
		if a := do(ctx, t, kube.URL(), kube.AdminToken(), method, path, body); a.status >= 300 {
			t.Fatalf("%s %s: %s", method, path, a)
		}
	}
	admin("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, namespace))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		do(ctx, t, kube.URL(), kube.AdminToken(), "DELETE", "/api/v1/namespaces/"+namespace+"/configmaps", "")
		do(ctx, t, kube.URL(), kube.AdminToken(), "DELETE", "/api/v1/namespaces/"+namespace, "")
	})
	for i := range n {
		admin("POST", "/api/v1/namespaces/"+namespace+"/configmaps", fmt.Sprintf(`{"metadata":{"name":"m%d"}}`, i))
	}
}

// TestListThatUpstreamEndsEarlyIsNeverServed checks that a truncated streaming list, cleanly ended
// by kube-apiserver, is not served as the state of the cluster. Informers that receive an empty
// list treat all objects as deleted.
func TestListThatUpstreamEndsEarlyIsNeverServed(t *testing.T) {
	ctx := deadline(t, time.Minute)
	const objects = 40
	fill(ctx, t, "ends-early", objects)
	g := startGatewayAt(t, endingProxy(t, "/configmaps", 10))
	for ctx.Err() == nil { // the reflector falls back to another kind of list after a while
		for _, query := range []string{"?resourceVersion=0", "?resourceVersion=0&limit=500"} {
			a := do(ctx, t, g.URL(), kube.AdminToken(), "GET", "/api/v1/namespaces/ends-early/configmaps"+query, "")
			var list struct {
				Metadata struct{ ResourceVersion string }
				Items    []json.RawMessage
			}
			must(t, json.Unmarshal([]byte(a.body), &list))
			if a.status != 200 || len(list.Items) < objects || list.Metadata.ResourceVersion == "0" {
				t.Fatalf("the list has %d of %d objects at version %q: %s", len(list.Items), objects, list.Metadata.ResourceVersion, a)
			}
		}
		if a := do(ctx, t, g.URL(), kube.AdminToken(), "GET", "/api/v1/namespaces/ends-early/configmaps/m7?resourceVersion=0", ""); a.status != 200 {
			t.Fatalf("get of an existing object: %s", a)
		}
		a := do(ctx, t, g.URL(), kube.AdminToken(), "GET", "/api/v1/namespaces/ends-early/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1"+
			"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "")
		if ended, added := strings.Contains(a.body, "initial-events-end"), strings.Count(a.body, `"ADDED"`); ended && added < objects {
			t.Fatalf("the initial events of a watch ended after %d objects", added)
		}
		if source := metricOf(ctx, t, g, `kubeweir_cache_feed_synced{encoding="json",group="",resource="configmaps"}`); source == 1 {
			return // finally served from the cache
		}
	}
	t.Error("the cache was never filled")
}

// metricOf returns a sample of the gateway's metrics, or 0 if there is none.
func metricOf(ctx context.Context, t *testing.T, g *realkube.Gateway, sample string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", g.AdminURL()+"/metrics", nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), sample+" "); ok {
			var v float64
			_, err := fmt.Sscan(rest, &v)
			must(t, err)
			return v
		}
	}
	return 0
}

// endingProxy starts a reverse proxy that cleanly ends streaming lists of one resource after a
// number of lines. It returns its URL.
func endingProxy(t *testing.T, resource string, lines int) string {
	t.Helper()
	pair, err := kube.IssueServingCert("127.0.0.1")
	must(t, err)
	cert, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	must(t, err)
	target, err := url.Parse(kube.URL())
	must(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Accept-Encoding") // the proxy counts lines; kube-apiserver may compress streaming lists since 1.37
		},
		FlushInterval: -1,
		Transport:     &http.Transport{TLSClientConfig: tlsConfig(t, nil), ForceAttemptHTTP2: true},
		ModifyResponse: func(resp *http.Response) error {
			if r := resp.Request; strings.HasSuffix(r.URL.Path, resource) && r.URL.Query().Get("sendInitialEvents") == "true" {
				resp.Body = &endingBody{ReadCloser: resp.Body, lines: lines}
			}
			return nil
		},
	}
	s := httptest.NewUnstartedServer(proxy)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s.URL
}

// endingBody ends after a number of lines.
type endingBody struct {
	io.ReadCloser
	lines int
}

func (b *endingBody) Read(p []byte) (int, error) {
	if b.lines == 0 {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	for i := range n {
		if p[i] == '\n' {
			if b.lines--; b.lines == 0 {
				return i + 1, io.EOF
			}
		}
	}
	return n, err
}

// TestFeedsDoNotSleepOnAfterAnOutage checks that every reflector catches up within 3 s after an
// outage, instead of waiting for the end of its backoff. The log has one line for the beginning of
// the outage and one for its end.
func TestFeedsDoNotSleepOnAfterAnOutage(t *testing.T) {
	const outage, limit = 6 * time.Second, 3 * time.Second
	ctx := deadline(t, time.Minute)
	fill(ctx, t, "outage", 1)
	cable := newCable(t)
	g := startGatewayAt(t, cable.url)
	resources := []string{"configmaps", "secrets", "services", "endpoints", "serviceaccounts", "persistentvolumeclaims"}
	holds := func(resource, name string) bool {
		a := do(ctx, t, g.URL(), kube.AdminToken(), "GET", "/api/v1/namespaces/outage/"+resource+"/"+name+"?resourceVersion=0", "")
		return a.status == 200
	}
	for _, r := range resources {
		if a := do(ctx, t, g.URL(), kube.AdminToken(), "GET", "/api/v1/"+r+"?resourceVersion=0", ""); a.status != 200 {
			t.Fatal(a)
		}
	}
	cable.cut(true)
	timer := time.NewTimer(outage)
	for _, r := range []string{"configmaps", "secrets", "serviceaccounts"} {
		if a := do(ctx, t, kube.URL(), kube.AdminToken(), "POST", "/api/v1/namespaces/outage/"+r, `{"metadata":{"name":"meanwhile"}}`); a.status != 201 {
			t.Fatal(a)
		}
	}
	<-timer.C
	cable.cut(false)
	back := time.Now()
	for _, r := range []string{"configmaps", "secrets", "serviceaccounts"} {
		for !holds(r, "meanwhile") {
			if time.Since(back) > 20*time.Second {
				t.Fatalf("the reflector of %s did not recover", r)
			}
		}
		t.Logf("the cache of %s is current %s after the outage", r, time.Since(back))
	}
	if took := time.Since(back); took > limit {
		t.Errorf("the reflectors recovered after %s, want at most 3s", took)
	}
	log := g.Log()
	if begins, ends := strings.Count(log, "upstream unreachable"), strings.Count(log, "upstream recovered"); begins != 1 || ends != 1 {
		t.Errorf("the log has %d lines 'upstream unreachable' and %d 'upstream recovered', want 1 of each", begins, ends)
	}
	if strings.Contains(log, "reflector restarting") {
		t.Error("the log has a line for each reflector")
	}
}

// cable is a TCP connection to kube-apiserver that tests can cut.
type cable struct {
	url string
	mu  sync.Mutex
	off bool
	all []net.Conn
}

func newCable(t *testing.T) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	c := &cable{url: "https://" + l.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { c.join(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.cut(true)
		running.Wait()
	})
	return c
}

// join forwards one connection until either side closes it.
func (c *cable) join(client net.Conn) {
	server, err := net.Dial("tcp", strings.TrimPrefix(kube.URL(), "https://"))
	c.mu.Lock()
	reject := c.off || err != nil
	if !reject {
		c.all = append(c.all, client, server)
	}
	c.mu.Unlock()
	if reject {
		_ = client.Close()
		if err == nil {
			_ = server.Close()
		}
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	both.Wait()
}

// cut closes all connections and rejects new ones while off is true.
func (c *cable) cut(off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = off
	for _, conn := range c.all {
		_ = conn.Close()
	}
	c.all = nil
}

// TestWatchListDoesNotWaitForABookmark checks that a streaming list, of the most recent state or
// from a version that another resource's write produced, neither waits for a bookmark nor fails
// without one.
func TestWatchListDoesNotWaitForABookmark(t *testing.T) {
	ctx := deadline(t, time.Minute)
	const objects = 300
	fill(ctx, t, "watchlist", objects)
	g := startGateway(t)
	const initial = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=20"
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig(t, nil), ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	// until returns the time until the initial events have ended, after a write to another resource.
	until := func(resource, version string) time.Duration {
		secret := do(ctx, t, kube.URL(), kube.AdminToken(), "PUT", "/api/v1/namespaces/watchlist/secrets/elsewhere",
			fmt.Sprintf(`{"metadata":{"name":"elsewhere","annotations":{"at":%q}}}`, time.Now()))
		if secret.status == 404 {
			secret = do(ctx, t, kube.URL(), kube.AdminToken(), "POST", "/api/v1/namespaces/watchlist/secrets", `{"metadata":{"name":"elsewhere"}}`)
		}
		if version == "foreign" {
			var o struct {
				Metadata struct{ ResourceVersion string }
			}
			must(t, json.Unmarshal([]byte(secret.body), &o))
			version = "&resourceVersion=" + o.Metadata.ResourceVersion
		}
		began := time.Now()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", g.URL()+"/api/v1/"+resource+"?"+initial+version, nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+kube.AdminToken())
		resp, err := client.Do(req)
		must(t, err)
		defer func() { _ = resp.Body.Close() }()
		lines := bufio.NewReader(resp.Body)
		for n := 0; ; n++ {
			line, err := lines.ReadString('\n')
			must(t, err)
			if strings.Contains(line, `"ERROR"`) {
				t.Fatalf("%s%s: %s", resource, version, line)
			}
			if !strings.Contains(line, "initial-events-end") {
				continue
			}
			if resource == "configmaps" && n < objects {
				t.Errorf("the initial events have %d objects", n)
			}
			return time.Since(began)
		}
	}
	for _, resource := range []string{"configmaps", "events"} {
		for _, version := range []string{"", "foreign"} {
			until(resource, version) // fill the cache
			took := make([]time.Duration, 9)
			for i := range took {
				took[i] = until(resource, version)
			}
			slices.Sort(took)
			t.Logf("%s %s: median %s of %v", resource, version, took[len(took)/2], took)
			if took[len(took)/2] > 700*time.Millisecond {
				t.Errorf("%s %s: %v", resource, version, took)
			}
		}
	}
	forwarded := metricOf(ctx, t, g, `kubeweir_requests_total{code="200",resource="events",source="forwarded",verb="watch"}`)
	if forwarded > 1 {
		t.Errorf("%v watches were forwarded, want at most 1", forwarded)
	}
}

// TestDeletedDefinitionLogsNoErrors checks that the deletion of a CustomResourceDefinition is
// logged as an ordinary event, not as an error.
func TestDeletedDefinitionLogsNoErrors(t *testing.T) {
	ctx := deadline(t, time.Minute)
	g := startGateway(t)
	const crds, gizmos = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/feeds.example.com/v1/gizmos"
	a := do(ctx, t, g.URL(), kube.AdminToken(), "POST", crds, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"gizmos.feeds.example.com"},"spec":{"group":"feeds.example.com","scope":"Namespaced","names":{"plural":"gizmos","kind":"Gizmo"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
	if a.status != 201 {
		t.Fatal(a)
	}
	synced := func() bool {
		do(ctx, t, g.URL(), kube.AdminToken(), "GET", gizmos+"?resourceVersion=0", "")
		return metricOf(ctx, t, g, `kubeweir_cache_feed_synced{encoding="json",group="feeds.example.com",resource="gizmos"}`) == 1
	}
	for !synced() {
		must(t, ctx.Err())
	}
	if a := do(ctx, t, g.URL(), kube.AdminToken(), "DELETE", crds+"/gizmos.feeds.example.com", ""); a.status != 200 {
		t.Fatal(a)
	}
	for !strings.Contains(g.Log(), "was deleted") {
		must(t, ctx.Err())
	}
	for _, line := range strings.Split(g.Log(), "\n") {
		if strings.Contains(line, "gizmos") && !strings.Contains(line, "level=INFO") && !strings.Contains(line, `"level":"INFO"`) {
			t.Error(line)
		}
	}
}
