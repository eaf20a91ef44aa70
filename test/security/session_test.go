package security

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
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

const frontConfigMaps = "/api/v1/namespaces/kube-public/configmaps"

// A front is a proxy between a gateway in session mode and kube-apiserver. It can respond to
// requests itself, and hold back the events of watches, as a slow network does.
type front struct {
	*httptest.Server
	gateway *realkube.Gateway
	// response responds to a request and returns true, or returns false to forward it.
	response func(w http.ResponseWriter, r *http.Request, next http.Handler) bool
	// gate is locked while events are held back.
	gate sync.RWMutex
}

func newFront(t *testing.T, response func(w http.ResponseWriter, r *http.Request, next http.Handler) bool) *front {
	t.Helper()
	f := &front{response: response}
	behind, err := url.Parse(kube.URL())
	must(t, err)
	next := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(behind) },
		Transport:      &http.Transport{TLSClientConfig: tlsConfig(t, nil), ForceAttemptHTTP2: true},
		FlushInterval:  -1,
		ModifyResponse: f.gated,
	}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.response(w, r, next) {
			next.ServeHTTP(w, r)
		}
	}))
	pair, err := kube.IssueServingCert("127.0.0.1")
	must(t, err)
	cert, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	must(t, err)
	f.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	f.EnableHTTP2 = true
	f.StartTLS()
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	f.gateway, err = realkube.StartGatewayWith(t.Context(), kube, realkube.GatewayOptions{
		Path: program, Upstream: f.URL, ExtraArgs: []string{"--consistency=session"},
	})
	must(t, err)
	t.Cleanup(f.gateway.Close)
	return f
}

// gated makes the body of a watch wait at the gate.
func (f *front) gated(resp *http.Response) error {
	if resp.Request.URL.Query().Get("watch") != "" {
		resp.Body = &gatedBody{resp.Body, f}
	}
	return nil
}

type gatedBody struct {
	io.ReadCloser
	front *front
}

func (b *gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.front.gate.RLock()
	defer b.front.gate.RUnlock()
	return n, err
}

// isProxied reports whether kube-apiserver would proxy the request to a pod.
func isProxied(r *http.Request) bool { return strings.Contains(r.URL.Path, "/pods/p/proxy/") }

func (f *front) do(ctx context.Context, t *testing.T, method, path, body string) response {
	t.Helper()
	return do(ctx, t, f.gateway.URL(), kube.AdminToken(), method, path, body)
}

// read lists the ConfigMaps with a label, and reports whether the response came from the cache.
func (f *front) read(ctx context.Context, t *testing.T, label string) (names []string, cached bool) {
	t.Helper()
	count := func() float64 {
		m, err := f.gateway.Metrics(ctx)
		must(t, err)
		return m.Sum("kubeweir_requests_total", map[string]string{"verb": "list", "resource": "configmaps", "source": "cached"})
	}
	before := count()
	a := f.do(ctx, t, "GET", frontConfigMaps+"?labelSelector=front="+label, "")
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != 200 {
		t.Fatalf("%s: %v", a, err)
	}
	for _, item := range list.Items {
		names = append(names, item.Metadata.Name)
	}
	return names, count() > before
}

func (f *front) create(ctx context.Context, t *testing.T, label, name string) {
	t.Helper()
	if a := f.do(ctx, t, "POST", frontConfigMaps, frontConfigMap(label, name)); a.status != 201 {
		t.Fatal(a)
	}
	t.Cleanup(func() {
		do(context.WithoutCancel(ctx), t, kube.URL(), kube.AdminToken(), "DELETE", frontConfigMaps+"/"+name, "")
	})
}

func frontConfigMap(label, name string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"front":%q}}}`, name, label)
}

// TestProxiedResponseDoesNotDelaySessions checks that responses of a tenant's pod through pods/proxy
// do not affect session reads, and are streamed (S8).
func TestProxiedResponseDoesNotDelaySessions(t *testing.T) {
	ctx := deadline(t, time.Minute)
	arrived := make(chan bool, 1)
	f := newFront(t, func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !isProxied(r) {
			return false
		}
		// More than the gateway writes at once.
		first, second := `{"metadata":{"resourceVersion":`+strings.Repeat(" ", 1<<20), `"18446744073709551615"}}`
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(len(first+second)))
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, first)
		w.(http.Flusher).Flush()
		select { // send the second half once the first has arrived
		case <-arrived:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, second)
		return true
	})
	must(t, readHalves(ctx, t, f.gateway.URL()+"/api/v1/namespaces/default/pods/p/proxy/x", arrived))
	for range 2 {
		if a := f.do(ctx, t, "GET", "/api/v1/pods", ""); a.status != 200 {
			t.Error(a)
		}
	}
	m, err := f.gateway.Metrics(ctx)
	must(t, err)
	pods := map[string]string{"verb": "list", "resource": "pods", "source": "cached"}
	if cached := m.Sum("kubeweir_requests_total", pods); cached != 2 {
		t.Errorf("%v of 2 reads were served from the cache", cached)
	}
	if requested := m.Sum("kubeweir_cache_fresh_rounds_total", map[string]string{"resource": "pods"}); requested != 0 {
		t.Errorf("the gateway made %v freshness checks, want 0", requested)
	}
}

// readHalves sends a POST and signals when the first half of the response has arrived.
func readHalves(ctx context.Context, t *testing.T, address string, arrived chan<- bool) error {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+kube.AdminToken())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig(t, nil)}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	if _, err := resp.Body.Read(make([]byte, 10)); err != nil {
		return err
	}
	arrived <- true
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// TestPartialDeleteCollectionIsNotTakenForRejected checks that a deletecollection that fails
// halfway still counts as a write: later session reads reflect its deletions.
func TestPartialDeleteCollectionIsNotTakenForRejected(t *testing.T) {
	ctx := deadline(t, time.Minute)
	f := newFront(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if r.Method != http.MethodDelete || r.URL.Path != frontConfigMaps {
			return false
		}
		next.ServeHTTP(httptest.NewRecorder(), r)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
		return true
	})
	f.create(ctx, t, "half", "half-a")
	if names, cached := f.read(ctx, t, "half"); !cached || !slices.Equal(names, []string{"half-a"}) {
		t.Fatalf("%q, cached %v", names, cached)
	}
	f.gate.Lock()
	defer f.gate.Unlock()
	if a := f.do(ctx, t, "DELETE", frontConfigMaps+"?labelSelector=front=half", ""); a.status != 403 {
		t.Fatal(a)
	}
	if names, cached := f.read(ctx, t, "half"); len(names) > 0 {
		t.Errorf("a read returns deleted objects %q, cached %v", names, cached)
	}
}

// TestWriteOfAClientThatLeftIsNotForgotten checks that a write still counts for session reads if
// its client disconnected before the response: it may have been applied.
func TestWriteOfAClientThatLeftIsNotForgotten(t *testing.T) {
	ctx := deadline(t, time.Minute)
	written := make(chan bool)
	f := newFront(t, func(_ http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if r.Method != http.MethodPost || r.URL.Query().Get("fieldManager") != "leaving" {
			return false
		}
		next.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		close(written)
		<-r.Context().Done()
		return true
	})
	f.create(ctx, t, "left", "left-a")
	if names, cached := f.read(ctx, t, "left"); !cached || len(names) != 1 {
		t.Fatalf("%q, cached %v", names, cached)
	}
	f.gate.Lock()
	defer f.gate.Unlock()
	conn := dial(t, f.gateway.URL(), nil, "http/1.1")
	body := frontConfigMap("left", "left-b")
	t.Cleanup(func() {
		do(context.WithoutCancel(ctx), t, kube.URL(), kube.AdminToken(), "DELETE", frontConfigMaps+"/left-b", "")
	})
	_, err := fmt.Fprintf(conn, "POST %s?fieldManager=leaving HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		frontConfigMaps, kube.AdminToken(), len(body), body)
	must(t, err)
	<-written
	must(t, conn.Close())
	eventually(ctx, t, func() error {
		m, err := f.gateway.Metrics(ctx)
		if err == nil && m.Sum("kubeweir_requests_total", map[string]string{"verb": "create", "code": "499"}) == 0 {
			err = fmt.Errorf("no request with code 499 is counted")
		}
		return err
	})
	if names, cached := f.read(ctx, t, "left"); !slices.Equal(names, []string{"left-a", "left-b"}) {
		t.Errorf("a read after the write returns %q, cached %v", names, cached)
	}
}
