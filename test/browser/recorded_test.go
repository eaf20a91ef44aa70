package browser

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// headlampPause is how long a user looks at a page before loading the next one.
var headlampPause = flag.Duration("headlamp.pause", 0, "pause between two loads of a page of Headlamp; 15s simulates a person")

// recorded holds the requests that Headlamp's frontend sends to a cluster: testdata/headlamp.json,
// recorded in Chromium behind its backend. The file names the release.
type recorded struct {
	Headers map[string]string `json:"headers"` // of each request
	Pages   []struct {
		Name     string            `json:"name"`
		Requests []recordedRequest `json:"requests"`
	} `json:"pages"`
}

// A recordedRequest is a GET, a POST of a review, or a watch over a WebSocket; the field with its
// path says which.
type recordedRequest struct {
	Get    string          `json:"get"`
	Accept string          `json:"accept"`
	Post   string          `json:"post"`
	Body   json.RawMessage `json:"body"`
	Status int             `json:"status"` // kube-apiserver's status
	Watch  string          `json:"watch"`
	Since  string          `json:"since"` // for a watch, the list from whose version it starts
}

// TestHeadlampRequests loads each of Headlamp's pages three times in a row through a fresh gateway
// with the profile for dashboards. At least 95 % of the reads are served from the cache, and the
// second load of a page sends hardly any request to the cluster.
func TestHeadlampRequests(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute+45**headlampPause)
	defer cancel()
	text, err := os.ReadFile(filepath.Join("testdata", "headlamp.json"))
	must(t, err)
	var record recorded
	must(t, json.Unmarshal(text, &record))
	createPagesObjects(ctx, t)
	b := newPages(t, startGateway(t, "--profile=dashboard"), record.Headers)
	awaitSettled(ctx, t)

	const loads = 3 // of each page; the first fills the cache
	var first, later, all traffic
	t.Logf("%-28s %9s %9s %9s %9s %9s", "page", "requests", "first", "then", "cached", "then")
	for _, page := range record.Pages {
		cold := b.load(ctx, page.Requests)
		first.add(cold)
		var warm traffic
		for range loads - 1 {
			warm = b.load(ctx, page.Requests)
			later.add(warm)
		}
		t.Logf("%-28s %9.0f %9.0f %9.0f %8.0f%% %8.0f%%", page.Name, warm.requests, cold.upstream, warm.upstream, 100*cold.share(), 100*warm.share())
	}
	all.add(first)
	all.add(later)
	for _, part := range []struct {
		name string
		traffic
	}{{"first", first}, {"then", later}, {"all", all}} {
		t.Logf("%s: %.0f requests, %.0f upstream, of %.0f reads %.1f%% from the cache", part.name, part.requests, part.upstream, part.reads, 100*part.share())
	}
	if all.share() < .95 && *headlampPause == 0 {
		t.Errorf("of %.0f reads %.0f came from the cache, less than 95%%", all.reads, all.cached)
	}
}

// createPagesObjects creates the objects for the pages of single objects.
func createPagesObjects(ctx context.Context, t *testing.T) {
	t.Helper()
	direct, err := kubernetes.NewForConfig(kube.AdminConfig())
	must(t, err)
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Labels: template.Labels}, Spec: template.Spec}
	_, err = direct.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
	_, err = direct.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = direct.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}}, metav1.CreateOptions{})
	must(t, err)
}

// traffic is what the gateway counted. requests are all requests of clients, reads those that the
// gateway does not answer itself (like /healthz), cached those reads that needed no upstream
// request, and upstream the requests to the upstream, reviews included.
type traffic struct{ requests, reads, cached, upstream float64 }

func (s *traffic) add(other traffic) {
	s.requests += other.requests
	s.reads += other.reads
	s.cached += other.cached
	s.upstream += other.upstream
}

func (s *traffic) share() float64 { return s.cached / s.reads }

// pages simulates a browser's tab in front of a gateway.
type pages struct {
	t       *testing.T
	gateway *realkube.Gateway
	client  *http.Client
	sockets websocket.Dialer
	header  http.Header
	counted traffic
}

func newPages(t *testing.T, g *realkube.Gateway, headers map[string]string) *pages {
	t.Helper()
	ca := &tls.Config{RootCAs: kube.ServingCAs()}
	transport := &http.Transport{TLSClientConfig: ca, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	p := &pages{
		t: t, gateway: g, client: &http.Client{Transport: transport},
		sockets: websocket.Dialer{TLSClientConfig: ca.Clone(), Subprotocols: []string{"base64.binary.k8s.io"}},
		header:  http.Header{"Authorization": {"Bearer " + kube.Token(realkube.Admin)}},
	}
	for name, value := range headers {
		p.header.Set(name, value)
	}
	return p
}

// settled is how long after its start a gateway caches decisions for only a short time: reviews
// within a second after it began to follow RBAC objects may reflect an earlier state.
const settled = 2 * time.Second

// awaitSettled waits until the gateway, which has just become ready, has been ready for that long.
func awaitSettled(ctx context.Context, t *testing.T) {
	t.Helper()
	ready := time.Now()
	must(t, testbed.Poll(ctx, time.Minute, func() error {
		if age := time.Since(ready); age < settled {
			return fmt.Errorf("the gateway has been ready for %s", age)
		}
		return nil
	}))
}

// load loads a page, looks at it, leaves it, and returns the traffic by the gateway's metrics.
func (p *pages) load(ctx context.Context, requests []recordedRequest) traffic {
	p.t.Helper()
	versions := map[string]string{}
	var open []*websocket.Conn
	for _, r := range requests {
		if r.Watch == "" {
			versions[r.Get] = p.request(ctx, r)
			continue
		}
		open = append(open, p.watch(ctx, r.Watch, versions[r.Since]))
	}
	if *headlampPause > 0 {
		select {
		case <-time.After(*headlampPause):
		case <-ctx.Done():
		}
	}
	for _, c := range open {
		must(p.t, c.Close())
	}
	return p.count(ctx, len(requests))
}

// request sends a request, expects the recorded status, and returns the resourceVersion of a list.
func (p *pages) request(ctx context.Context, r recordedRequest) string {
	p.t.Helper()
	method, path, body := "GET", r.Get, io.Reader(nil)
	if r.Post != "" {
		method, path, body = "POST", r.Post, bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.gateway.URL()+path, body)
	must(p.t, err)
	req.Header = p.header.Clone()
	if r.Post != "" {
		req.Header.Set("Accept", "application/json")
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Origin", "https://dashboard")
	} else if r.Accept != "" {
		req.Header.Set("Accept", r.Accept)
	}
	resp, err := p.client.Do(req)
	must(p.t, err)
	defer func() { _ = resp.Body.Close() }()
	content := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		content, err = gzip.NewReader(content)
		must(p.t, err)
	}
	text, err := io.ReadAll(content)
	must(p.t, err)
	if resp.StatusCode != r.Status {
		p.t.Errorf("%s %s: %d %.200s; recorded: %d", method, path, resp.StatusCode, text, r.Status)
	}
	var list metav1.PartialObjectMetadataList
	if json.Unmarshal(text, &list) != nil || !strings.HasSuffix(list.Kind, "List") {
		return ""
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
	header := p.header.Clone()
	header.Set("Origin", "https://dashboard")
	c, resp, err := p.sockets.DialContext(ctx, strings.Replace(p.gateway.URL(), "https", "wss", 1)+path+query, header)
	if err != nil {
		p.t.Fatalf("%s%s: %v, %v", path, query, err, resp)
	}
	return c
}

// count waits until all sent requests are counted and returns the traffic since the last call.
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
			switch label["source"] {
			case "gateway":
			case "cached":
				now.cached += n
				fallthrough
			default:
				now.reads += n
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
