package browser

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// recorded is what Headlamp's frontend asks of a cluster: testdata/headlamp.json, written by reading its source at the commit
// that the file names, each request beside the file from which it comes.
type recorded struct {
	Every []recordedRequest `json:"every"` // what each page load begins with
	Pages []struct {
		Name     string            `json:"name"`
		Requests []recordedRequest `json:"requests"`
	} `json:"pages"`
}

// recordedRequest is a GET, or a POST of a review.
type recordedRequest struct {
	Path string          `json:"path"`
	Post json.RawMessage `json:"post"`
	// Watch is what is watched over a WebSocket once there is an answer: a list from its version on.
	Watch string `json:"watch"`
}

// TestHeadlampRequests loads each of Headlamp's pages, again and again, through a gateway with the profile for dashboards:
// what a page reads comes from the cache, and from the second time on what its user may do from memory.
func TestHeadlampRequests(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	text, err := os.ReadFile(filepath.Join("testdata", "headlamp.json"))
	must(t, err)
	var record recorded
	must(t, json.Unmarshal(text, &record))
	direct, err := kubernetes.NewForConfig(kube.AdminConfig())
	must(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}}}
	_, err = direct.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
	b := newPages(t, startGateway(t, "--profile=dashboard"))

	const loads = 3 // of each page; the first fills the cache
	var first, later traffic
	t.Logf("%-24s %9s %9s %9s %9s", "page", "requests", "first", "then", "cached")
	for _, page := range record.Pages {
		requests := append(append([]recordedRequest(nil), record.Every...), page.Requests...)
		cold := b.load(ctx, requests)
		first.add(cold)
		var warm traffic
		for range loads - 1 {
			warm = b.load(ctx, requests)
			later.add(warm)
		}
		t.Logf("%-24s %9.0f %9.0f %9.0f %8.0f%%", page.Name, warm.requests, cold.upstream, warm.upstream, 100*warm.share())
	}
	t.Logf("first: %.0f requests, %.0f upstream, of %.0f reads %.1f%% from the cache", first.requests, first.upstream, first.reads, 100*first.share())
	t.Logf("then: %.0f requests, %.0f upstream, of %.0f reads %.1f%% from the cache", later.requests, later.upstream, later.reads, 100*later.share())
	if later.share() < .95 {
		t.Errorf("of %.0f reads %.0f came from the cache, less than 95%%", later.reads, later.cached)
	}
}

// traffic is what the gateway counted: requests of clients, those of them that read a resource which the cluster has or ask
// about the user, those of the latter that the upstream was not asked for, and the requests upstream.
type traffic struct{ requests, reads, cached, upstream float64 }

func (s *traffic) add(other traffic) {
	s.requests += other.requests
	s.reads += other.reads
	s.cached += other.cached
	s.upstream += other.upstream
}

func (s *traffic) share() float64 { return s.cached / s.reads }

// pages are a browser's tab before a gateway.
type pages struct {
	t       *testing.T
	gateway *realkube.Gateway
	client  *http.Client
	sockets websocket.Dialer
	header  http.Header
	counted traffic
}

func newPages(t *testing.T, g *realkube.Gateway) *pages {
	t.Helper()
	ca := &tls.Config{RootCAs: kube.ServingCAs()}
	transport := &http.Transport{TLSClientConfig: ca, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &pages{
		t: t, gateway: g, client: &http.Client{Transport: transport},
		sockets: websocket.Dialer{TLSClientConfig: ca.Clone(), Subprotocols: []string{"base64.binary.k8s.io"}},
		header:  http.Header{"Authorization": {"Bearer " + kube.Token(realkube.Admin)}, "Origin": {"https://dashboard"}, "User-Agent": {"Headlamp 0.45.0 (linux/amd64)"}},
	}
}

// load loads a page, leaves it, and returns what that was in the gateway's metrics.
func (p *pages) load(ctx context.Context, requests []recordedRequest) traffic {
	p.t.Helper()
	sent := 0
	var open []*websocket.Conn
	for _, r := range requests {
		version := p.ask(ctx, r)
		sent++
		if r.Watch != "" {
			open = append(open, p.watch(ctx, r.Watch, version))
			sent++
		}
	}
	for _, c := range open {
		must(p.t, c.Close())
	}
	return p.count(ctx, sent)
}

// ask sends a request and returns the resourceVersion of a list.
func (p *pages) ask(ctx context.Context, r recordedRequest) string {
	p.t.Helper()
	method, body := "GET", io.Reader(nil)
	if r.Post != nil {
		method, body = "POST", bytes.NewReader(r.Post)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.gateway.URL()+r.Path, body)
	must(p.t, err)
	req.Header = p.header.Clone()
	if r.Post != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := p.client.Do(req)
	must(p.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	must(p.t, err)
	if r.Watch == "" {
		return ""
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(text, &list); err != nil || resp.StatusCode != 200 {
		p.t.Fatalf("%s: %d %.200s: %v", r.Path, resp.StatusCode, text, err)
	}
	if !strings.HasSuffix(list.Kind, "List") {
		return "" // one object is watched from now on
	}
	return list.ResourceVersion
}

// watch opens a WebSocket.
func (p *pages) watch(ctx context.Context, path, version string) *websocket.Conn {
	p.t.Helper()
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	query := separator + "watch=1"
	if version != "" {
		query += "&resourceVersion=" + version
	}
	c, resp, err := p.sockets.DialContext(ctx, strings.Replace(p.gateway.URL(), "https", "wss", 1)+path+query, p.header)
	if err != nil {
		p.t.Fatalf("%s%s: %v, %v", path, query, err, resp)
	}
	return c
}

// count returns what was counted since it was called last, once all requests that were sent are.
func (p *pages) count(ctx context.Context, sent int) traffic {
	p.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		m, err := p.gateway.Metrics(ctx)
		must(p.t, err)
		now := traffic{upstream: m.Sum("kubeweir_upstream_requests_total", nil)}
		for _, s := range m["kubeweir_requests_total"].GetMetric() {
			label := map[string]string{}
			for _, pair := range s.GetLabel() {
				label[pair.GetName()] = pair.GetValue()
			}
			n := s.GetCounter().GetValue()
			now.requests += n
			if label["resource"] == "" {
				continue // what is no resource of the cluster
			}
			now.reads += n
			if label["source"] == "cached" {
				now.cached += n
			}
		}
		since := traffic{now.requests - p.counted.requests, now.reads - p.counted.reads, now.cached - p.counted.cached, now.upstream - p.counted.upstream}
		if since.requests >= float64(sent) {
			p.counted = now
			return since
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.t.Fatal(fmt.Errorf("%v of %d requests are counted: %w", since.requests, sent, context.Cause(ctx)))
		}
	}
}
