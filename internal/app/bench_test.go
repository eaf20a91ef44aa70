package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/api"
)

// running starts a standalone server in memory, or in the given folder, and returns
// it with an HTTP client of the administrator.
func running(t testing.TB, dir string) (*Standalone, *http.Client) {
	t.Helper()
	c := config.DefaultStandalone()
	c.Listen, c.AdminListen, c.Shutdown.Drain = "127.0.0.1:0", "", 0
	c.DataDir = dir
	c.Admission.DisablePlugins = []string{"ServiceAccount"}
	s, err := NewStandalone(t.Context(), c, StandaloneOptions{NoDataDir: dir == "", UserAgent: "kubeweir/test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	tlsConfig, err := rest.TLSConfigFor(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig.MinVersion = tls.VersionTLS12
	transport := &http.Transport{TLSClientConfig: tlsConfig, MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(s.Drain)
	return s, &http.Client{Transport: transport}
}

// call is one request, whose answer must have the status.
func call(t testing.TB, client *http.Client, method, url, body string, status int) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Fatalf("%s %s: %s, %v\n%s", method, url, resp.Status, err, out)
	}
	return out
}

// configMap is one of some 4 KB.
func configMap(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"text":%q}}`, name, bytes.Repeat([]byte("x"), 4<<10))
}

// BenchmarkRead compares most-recent reads with those of any version, with nothing
// going on and with writes to another resource before each.
func BenchmarkRead(b *testing.B) {
	s, client := running(b, "")
	base := s.URL() + "/api/v1/namespaces/default/"
	for i := range 100 {
		call(b, client, "POST", base+"configmaps", configMap(fmt.Sprintf("c%03d", i)), 201)
	}
	lease := s.URL() + "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	call(b, client, "POST", lease, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"}}`, 201)
	for _, read := range []struct{ name, url string }{{"get", base + "configmaps/c042"}, {"list", base + "configmaps"}} {
		for _, version := range []string{"0", ""} {
			name, query := "any", "?resourceVersion=0"
			if version == "" {
				name, query = "recent", ""
			}
			b.Run(read.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					call(b, client, "GET", read.url+query, "", 200)
				}
			})
			b.Run(read.name+"/"+name+"/writes", func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					req, err := http.NewRequestWithContext(b.Context(), "PATCH", lease+"/l", strings.NewReader(fmt.Sprintf(`{"spec":{"leaseTransitions":%d}}`, i)))
					if err != nil {
						b.Fatal(err)
					}
					req.Header.Set("Content-Type", "application/merge-patch+json")
					resp, err := client.Do(req)
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					b.StartTimer()
					call(b, client, "GET", read.url+query, "", 200)
				}
			})
		}
	}
}

// BenchmarkFresh is what it adds to a read to know that the cache is current.
func BenchmarkFresh(b *testing.B) {
	s, client := running(b, "")
	call(b, client, "GET", s.URL()+"/api/v1/configmaps", "", 200)
	res, ok := s.served.(*cluster).resources.Lookup(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	if !ok {
		b.Fatal("no config maps")
	}
	c, err := s.served.(*cluster).manager.Collection(b.Context(), res, api.JSON)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Freshness().FreshAtOnce(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCreate is a durable write, by one client and by many.
func BenchmarkCreate(b *testing.B) {
	for _, clients := range []int{1, 8, 32} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			s, client := running(b, b.TempDir())
			url := s.URL() + "/api/v1/namespaces/default/configmaps"
			next := make(chan string)
			var group sync.WaitGroup
			for range clients {
				group.Go(func() {
					for name := range next {
						call(b, client, "POST", url, configMap(name), 201)
					}
				})
			}
			for i := 0; b.Loop(); i++ {
				next <- fmt.Sprintf("c%d", i)
			}
			close(next)
			group.Wait()
		})
	}
}
