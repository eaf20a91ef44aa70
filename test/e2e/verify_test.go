package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

const verifyNamespace = "verify"

// A tamperer is a proxy in front of kube-apiserver that changes or drops events of JSON watches.
type tamperer struct {
	// event maps a line to the line to send, or nil to drop it.
	event atomic.Pointer[func(line []byte) []byte]
}

// start starts the proxy and returns its URL.
func (p *tamperer) start(t *testing.T) string {
	t.Helper()
	serving, err := kube.IssueServingCert("127.0.0.1")
	must(t, err)
	cert, err := tls.X509KeyPair(serving.CertPEM, serving.KeyPEM)
	must(t, err)
	upstream, err := url.Parse(kube.URL())
	must(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: kube.ServingCAs()}, DisableCompression: true},
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Query().Get("watch") == "true" && strings.HasPrefix(r.Header.Get("Content-Type"), typeJSON) {
				r.Body = p.through(r.Body)
			}
			return nil
		},
	}
	s := httptest.NewUnstartedServer(proxy)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// through forwards a body line by line until it ends or is closed.
func (p *tamperer) through(body io.ReadCloser) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		defer func() { _ = body.Close() }()
		lines := bufio.NewReader(body)
		for {
			line, err := lines.ReadBytes('\n')
			if change := p.event.Load(); change != nil {
				line = (*change)(line)
			}
			if len(line) > 0 {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
			if err != nil {
				_ = w.CloseWithError(err)
				return
			}
		}
	}()
	return r
}

// verify runs `kubeweir verify` and returns its output and exit code.
func verify(ctx context.Context, t *testing.T, g *realkube.Gateway, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(ctx, bed.Program, append([]string{"verify", "--admin", g.AdminURL()}, args...)...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// TestVerify drops and changes events between the gateway and kube-apiserver. `kubeweir verify`
// must find each difference, and informers must then hold the same objects as kube-apiserver.
func TestVerify(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	createNamespaces(ctx, t, verifyNamespace)
	tampered := &tamperer{}
	g := bed.StartGateway(t, realkube.GatewayOptions{Upstream: tampered.start(t), ExtraArgs: []string{"--self-check-period=0"}})
	typed, _ := directClients(t)
	maps := typed.CoreV1().ConfigMaps(verifyNamespace)
	upstream, err := metadata.NewForConfig(kube.AdminConfig())
	must(t, err)
	write := func(name, color string) {
		t.Helper()
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"color": color}}
		if _, err := maps.Create(ctx, m, metav1.CreateOptions{}); err != nil {
			if _, err = maps.Update(ctx, m, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
	for _, name := range []string{"one", "two", "three"} {
		write(name, "green")
	}
	var followers []*follower
	for _, f := range newFollowers(t, g.AdminConfig(), configMapsResource) {
		if strings.HasPrefix(f.name, "dynamic") {
			followers = append(followers, f)
		}
	}
	runFollowers(ctx, t, followers)
	settled := func() {
		t.Helper()
		want, err := versionsOf(ctx, upstream, configMapsResource)
		must(t, err)
		for _, f := range followers {
			eventually(ctx, t, 30*time.Second, func() error { return f.equals(want) })
		}
	}
	settled()
	if out, code := verify(ctx, t, g); code != 0 || !strings.Contains(out, "configmaps ") {
		t.Fatalf("before the faults verify exits with %d:\n%s", code, out)
	}
	gone := func(line []byte) []byte { return nil }
	for i, c := range []struct {
		name, kind string
		change     func([]byte) []byte
		write      func()
	}{
		{"new", "missing", gone, func() { write("new", "green") }},
		{"one", "extra", gone, func() { must(t, maps.Delete(ctx, "one", metav1.DeleteOptions{})) }},
		{"two", "version", gone, func() { write("two", "brown") }},
		{"three", "bytes", func(line []byte) []byte { return bytes.Replace(line, []byte(`"brown"`), []byte(`"crown"`), 1) }, func() { write("three", "brown") }},
	} {
		change := func(line []byte) []byte {
			if !bytes.Contains(line, []byte(`"name":"`+c.name+`"`)) {
				return line
			}
			return c.change(line)
		}
		tampered.event.Store(&change)
		c.write()
		last := fmt.Sprintf("last-%d", i) // once it has arrived, the faulty event is past
		write(last, "green")
		for _, f := range followers {
			eventually(ctx, t, waitTimeout, func() error {
				if f.held()[verifyNamespace+"/"+last] == "" {
					return errors.New("the last write has not arrived")
				}
				return nil
			})
		}
		tampered.event.Store(nil)
		want := fmt.Sprintf("configmaps %s/%s: %s (", verifyNamespace, c.name, c.kind)
		// With continuous writes, the reflector passes the version of the comparison at once. Otherwise
		// it would have to wait for a bookmark.
		stop := keepWriting(ctx, t, func() { write("busy", "green"); write("busy", "blue") })
		out, code := verify(ctx, t, g, "--resource", "configmaps")
		stop()
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("verify exits with %d, want %q in:\n%s", code, want, out)
		}
		settled()
		for _, f := range followers {
			eventually(ctx, t, 30*time.Second, func() error { return f.hasNo("crown") })
		}
		if out, code := verify(ctx, t, g, "--resource", "configmaps"); code != 0 {
			t.Errorf("after the reflector listed again, verify exits with %d:\n%s", code, out)
		}
	}
}

// keepWriting writes until stop is called.
func keepWriting(ctx context.Context, t *testing.T, write func()) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var writing sync.WaitGroup
	writing.Go(func() {
		tick := time.NewTicker(testbed.PollPeriod)
		defer tick.Stop()
		for ctx.Err() == nil {
			write()
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		writing.Wait()
	}
}

// hasNo returns an error if an object in the informer's store contains the text.
func (f *follower) hasNo(text string) error {
	for _, obj := range f.informer.GetStore().List() {
		if strings.Contains(fmt.Sprint(obj), text) {
			return fmt.Errorf("%s: the store still contains %q", f.name, text)
		}
	}
	return nil
}

// TestVerifyWhileWriting runs verify repeatedly while writers change all objects: there must be no
// differences.
func TestVerifyWhileWriting(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	namespaces := []string{"verify-1", "verify-2"}
	resources := []schema.GroupVersionResource{podsResource, configMapsResource, widgetsResource}
	createNamespaces(ctx, t, namespaces...)
	regional := startGateway(t, "--self-check-period=1s")
	site := bed.StartGateway(t, realkube.GatewayOptions{Upstream: regional.URL(), ExtraArgs: []string{"--self-check-period=1s"}})
	followers := newFollowers(t, site.AdminConfig(), resources...)
	runFollowers(ctx, t, followers)
	c := through(t, site, as(realkube.Admin))
	for _, path := range []string{"/api/v1/events", "/apis/events.k8s.io/v1/events", "/api/v1/secrets", "/apis/coordination.k8s.io/v1/leases"} {
		c.get(ctx, t, path+"?resourceVersion=0", "")
	}
	all := newWriters(t, 1, resources, namespaces, kube.AdminConfig(), http1(kube.AdminConfig()), site.AdminConfig())
	writing := make(chan error, 1)
	go func() { writing <- all.write(ctx, 1500) }()
	checks, done := 0, false
	for !done {
		select {
		case err := <-writing:
			must(t, err)
			done = true
		default:
		}
		for _, g := range []*realkube.Gateway{regional, site} {
			if out, code := verify(ctx, t, g); code != 0 {
				t.Errorf("verify exits with %d:\n%s", code, out)
			}
			checks++
		}
	}
	t.Logf("compared all collections %d times", checks)
	for _, g := range []*realkube.Gateway{regional, site} {
		m, err := g.Metrics(ctx)
		must(t, err)
		same, differs := m.Sum("kubeweir_cache_checks_total", map[string]string{"result": "same"}), m.Sum("kubeweir_cache_checks_total", map[string]string{"result": "differs"})
		t.Logf("%v collections were equal", same)
		if differs > 0 {
			t.Errorf("%v collections differed", differs)
		}
	}
}
