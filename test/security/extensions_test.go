package security

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// startStandalone starts a standalone kubeweir that ends with the test and must not panic. If the
// test fails, it prints the end of the log.
func startStandalone(t *testing.T, opts realkube.StandaloneOptions) *realkube.Standalone {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	opts.Path = program
	s, err := realkube.StartStandalone(ctx, opts)
	must(t, err)
	t.Cleanup(func() {
		log := s.Log()
		s.Close()
		if strings.Contains(log, "panic:") {
			t.Error("kubeweir panicked")
		}
		if t.Failed() {
			lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
			t.Logf("end of the log:\n%s", strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	})
	return s
}

// administrator returns the configuration of a client of s with all permissions.
func administrator(t *testing.T, s *realkube.Standalone) *rest.Config {
	t.Helper()
	cfg, err := s.AdminConfig()
	must(t, err)
	return cfg
}

// apply creates an object from YAML.
func apply(ctx context.Context, t *testing.T, cfg *rest.Config, gvr schema.GroupVersionResource, manifest string) {
	t.Helper()
	client, err := dynamic.NewForConfig(cfg)
	must(t, err)
	obj := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal([]byte(manifest), &obj.Object))
	if obj.GetNamespace() != "" {
		_, err = client.Resource(gvr).Namespace(obj.GetNamespace()).Create(ctx, obj, metav1.CreateOptions{})
	} else {
		_, err = client.Resource(gvr).Create(ctx, obj, metav1.CreateOptions{})
	}
	must(t, err)
}

// register registers an aggregated API server: requests for the group go to address.
func register(ctx context.Context, t *testing.T, cfg *rest.Config, group, address string) {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	name := strings.ReplaceAll(group, ".", "-")
	apply(ctx, t, cfg, schema.GroupVersionResource{Version: "v1", Resource: "services"}, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec: {type: ExternalName, externalName: localhost, ports: [{port: %s}]}`, name, u.Port()))
	apply(ctx, t, cfg, apiServices, fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.%s}
spec:
  group: %s
  version: v1
  groupPriorityMinimum: 2000
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {namespace: default, name: %s, port: %s}`, group, group, name, u.Port()))
}

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// request sends one request as cfg's user and reads the response. It does not follow redirects.
func request(ctx context.Context, t *testing.T, cfg *rest.Config, method, path, body string) (response, error) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	must(t, err)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	req, err := http.NewRequestWithContext(ctx, method, cfg.Host+path, strings.NewReader(body))
	must(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return response{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, string(b)}, err
}

// eventually retries check until it returns nil or ctx ends.
func eventually(ctx context.Context, t *testing.T, check func() error) {
	t.Helper()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// requested receives the paths of requests.
type requested chan string

func (a requested) await(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-a:
		case <-ctx.Done():
			t.Fatal("the aggregated API server received no request")
		}
	}
}

// TestAggregatedServerDoesNotEndTheProcess checks that an aggregated API server that pauses within
// a response, sends an invalid status, or never ends its response, does not end the process. It
// must not prevent a restart or the deletion of its APIService either.
func TestAggregatedServerDoesNotEndTheProcess(t *testing.T) {
	for name, serve := range map[string]func(w http.ResponseWriter, req *http.Request){
		"slow": func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.WriteString(w, "0123456789")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(600 * time.Millisecond): // longer than the flush interval of ReverseProxy
			case <-req.Context().Done():
			}
			_, _ = io.WriteString(w, "the rest")
		},
		"impossible status": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 042 Odd\r\nContent-Length: 0\r\n\r\n")
			_ = conn.Close()
		},
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			block := []byte(strings.Repeat("[", 64<<10))
			for range 2048 { // 128 MiB
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := deadline(t, time.Minute)
			requests := make(requested, 1000)
			elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				serve(w, req)
				select {
				case requests <- req.URL.Path:
				default:
				}
			}))
			defer elsewhere.Close()
			s := startStandalone(t, realkube.StandaloneOptions{})
			cfg := administrator(t, s)
			register(ctx, t, cfg, "odd.example.com", elsewhere.URL)
			// Discovery and OpenAPI are downloaded in the background, and a client requests them, too.
			requests.await(ctx, t, 2)
			for _, path := range []string{"/openapi/v2", "/openapi/v3", "/apis/odd.example.com/v1/things"} {
				_, _ = request(ctx, t, cfg, http.MethodGet, path, "")
			}
			requests.await(ctx, t, 4)
			if a, err := request(ctx, t, cfg, http.MethodGet, "/api/v1/namespaces/default", ""); err != nil || a.status != http.StatusOK {
				t.Fatalf("request afterwards: %s, %v", a, err)
			}
			must(t, s.Stop(ctx))
			must(t, s.Start(ctx))
			requests.await(ctx, t, 2)
			if a, err := request(ctx, t, cfg, http.MethodDelete, "/apis/apiregistration.k8s.io/v1/apiservices/v1.odd.example.com", ""); err != nil || a.status != http.StatusOK {
				t.Fatalf("deleting the APIService: %s, %v", a, err)
			}
			eventually(ctx, t, func() error {
				if a, err := request(ctx, t, cfg, http.MethodGet, "/apis/odd.example.com/v1/things", ""); err != nil || a.status != http.StatusNotFound {
					return fmt.Errorf("after the deletion of the APIService: %s, %v", a, err)
				}
				return nil
			})
		})
	}
}

// TestAggregatedServerDoesNotRedirectClients checks that an aggregated API server cannot redirect
// clients, who would send their credentials to another server (CVE-2022-3172). It runs against
// kube-apiserver, too.
func TestAggregatedServerDoesNotRedirectClients(t *testing.T) {
	ctx := deadline(t, time.Minute)
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/v1") {
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"moved.example.com/v1","resources":[]}`)
			return
		}
		w.Header().Set("Location", "https://attacker.example.com/")
		w.WriteHeader(http.StatusFound)
	}))
	defer elsewhere.Close()
	s := startStandalone(t, realkube.StandaloneOptions{})
	for name, cfg := range map[string]*rest.Config{"standalone": administrator(t, s), "kube-apiserver": kube.AdminConfig()} {
		register(ctx, t, cfg, "moved.example.com", elsewhere.URL)
		eventually(ctx, t, func() error {
			a, err := request(ctx, t, cfg, http.MethodGet, "/apis/moved.example.com/v1/things", "")
			if err != nil || a.status != http.StatusBadGateway || a.header.Get("Location") != "" ||
				a.body != "the backend attempted to redirect this request, which is not permitted" {
				return fmt.Errorf("%s: %s, %v", name, a, err)
			}
			return nil
		})
		_, err := request(ctx, t, cfg, http.MethodDelete, "/apis/apiregistration.k8s.io/v1/apiservices/v1.moved.example.com", "")
		must(t, err)
	}
}
