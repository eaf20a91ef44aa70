package servers

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/upstream"
	"github.com/kubeweir/kubeweir/test/realkube"
)

// advertised returns the address that the n-th server advertises. Loopback addresses are not valid
// endpoints, so servers advertise addresses of RFC 5737, and a way forwards connections from these
// to the servers.
func advertised(n int) string { return fmt.Sprintf("192.0.2.%d", n) }

// startAdvertised starts n kube-apiservers on one etcd that advertise their addresses in the
// endpoints of the Service kubernetes.
func startAdvertised(t *testing.T, n int) []*realkube.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	first, err := realkube.Start(ctx, realkube.Options{ExtraArgs: []string{
		"--endpoint-reconciler-type=lease", "--advertise-address=" + advertised(1),
	}})
	must(t, err)
	t.Cleanup(func() { _ = first.Close() })
	_, err = kubernetes.NewForConfigOrDie(first.AdminConfig()).CoreV1().Namespaces().
		Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(t, err)
	all := []*realkube.Cluster{first}
	for len(all) < n {
		all = append(all, startPeer(ctx, t, all))
	}
	return all
}

func startPeer(ctx context.Context, t *testing.T, all []*realkube.Cluster) *realkube.Cluster {
	t.Helper()
	peer, err := all[0].StartPeer(ctx, "--advertise-address="+advertised(len(all)+1))
	must(t, err)
	t.Cleanup(func() { _ = peer.Close() })
	return peer
}

// seen returns the gateway's metrics of its servers by host: whether each is up, and its requests.
func seen(ctx context.Context, t *testing.T, g *realkube.Gateway) (up, requests map[string]float64) {
	t.Helper()
	m, err := g.Metrics(ctx)
	must(t, err)
	by := func(family string) map[string]float64 {
		values := map[string]float64{}
		for _, s := range m[family].GetMetric() {
			for _, l := range s.GetLabel() {
				if host, _, err := net.SplitHostPort(l.GetValue()); err == nil && l.GetName() == "server" {
					values[host] += s.GetGauge().GetValue() + s.GetCounter().GetValue()
				}
			}
		}
		return values
	}
	return by("kubeweir_upstream_server_up"), by("kubeweir_upstream_server_requests_total")
}

// knows waits until the gateway uses exactly the servers with these numbers, apart from servers
// with other addresses, and returns how long that took.
func knows(ctx context.Context, t *testing.T, g *realkube.Gateway, numbers ...int) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		up, _ := seen(ctx, t, g)
		good := 0
		for _, n := range numbers {
			good += int(up[advertised(n)])
		}
		there := 0
		for host := range up {
			if strings.HasPrefix(host, "192.0.2.") {
				there++
			}
		}
		if good == len(numbers) && there == good {
			return time.Since(began)
		}
		if ctx.Err() != nil {
			log := g.Log()
			t.Fatalf("the gateway has the servers %v; its log ends with\n%s", up, log[max(0, len(log)-3000):])
		}
		pause(ctx, t, 20*time.Millisecond)
	}
}

// writes creates objects through the gateway and fails the test if a write fails.
func writes(t *testing.T, g *realkube.Gateway, client *http.Client, what string) {
	t.Helper()
	for n := range 30 {
		body := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"generateName":"w-"}}`
		req, err := http.NewRequest("POST", g.URL()+path, strings.NewReader(body))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		must(t, err)
		response, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != 201 {
			t.Errorf("%s: write %d: %d %v %.300s", what, n, resp.StatusCode, err, response)
		}
	}
}

// TestServersFound checks that the gateway discovers kube-apiservers in the EndpointSlice of the
// Service kubernetes: it adds and removes servers without a failed write. It also checks that an
// upstream client that finds servers by DNS resolves the name again when a server is killed.
func TestServersFound(t *testing.T) {
	all := startAdvertised(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	way := startWay(t)
	way.lead(all)
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		t.Setenv(name, "")
	}
	t.Setenv("HTTPS_PROXY", way.url())
	g, err := realkube.StartGateway(ctx, all[0], "--upstream-servers", "endpointslices")
	must(t, err)
	t.Cleanup(g.Close)
	client, err := rest.HTTPClientFor(g.AdminConfig())
	must(t, err)
	t.Logf("found two servers in %v", knows(ctx, t, g, 1, 2))
	writes(t, g, client, "two servers")

	all = append(all, startPeer(ctx, t, all))
	way.lead(all)
	t.Logf("found the added server in %v", knows(ctx, t, g, 1, 2, 3))
	for {
		writes(t, g, client, "an added server")
		if _, requests := seen(ctx, t, g); requests[advertised(3)] > 0 || ctx.Err() != nil {
			break
		}
	}

	// Stop the server of the kubeconfig.
	stopped := make(chan error, 1)
	go func() { stopped <- all[0].StopAPIServer(ctx) }()
	for going := true; going; {
		select {
		case err := <-stopped:
			must(t, err)
			going = false
		default:
			writes(t, g, client, "a stopping server")
		}
	}
	t.Logf("removed the stopped server in %v", knows(ctx, t, g, 2, 3))
	writes(t, g, client, "a stopped server")

	byName(ctx, t, all, way)
	if *rounds > 1 {
		// The server's lease ends 15 s after its last renewal, and the other server looks every 10 s.
		t.Logf("removed the killed server in %v", knows(ctx, t, g, 3))
		writes(t, g, client, "a killed server")
	}
	if g.Panicked() {
		t.Error("the gateway panicked")
	}
	if t.Failed() {
		log := g.Log()
		t.Logf("the gateway's log ends with\n%s", log[max(0, len(log)-6000):])
	}
}

// byName checks that a client that resolves a DNS name reaches the second server and, once that is
// killed and the name has another address, the third.
func byName(ctx context.Context, t *testing.T, all []*realkube.Cluster, way *way) {
	t.Helper()
	dns := startDNS(t, "api.kube.test.")
	dns.lead(netip.MustParseAddr(advertised(2)))
	config := all[1].AdminConfig()
	config.ServerName, config.Dial = "kubernetes", way.dial
	client, err := upstream.New(upstream.Options{
		Config: config, Servers: []string{"dns:///api.kube.test:6443"}, Resolver: dns.resolver(),
	})
	must(t, err)
	t.Cleanup(client.Close)
	if code := read(ctx, client); code != 200 {
		t.Fatalf("read: %d", code)
	}
	before := way.carried(3)
	dns.lead(netip.MustParseAddr(advertised(3)))
	must(t, all[1].KillAPIServer())
	began := time.Now()
	for read(ctx, client) != 200 {
		if time.Since(began) > 20*time.Second { // less than the interval at which the client resolves the name anyway
			t.Fatal("the client did not find the server at the new address")
		}
		pause(ctx, t, 20*time.Millisecond)
	}
	t.Logf("found the server at the new address in %v", time.Since(began))
	if way.carried(3) == before {
		t.Error("the client did not connect to the new address")
	}
}

// read requests /version, which a server serves without etcd.
func read(ctx context.Context, client *upstream.Client) (code int) {
	r := &api.Request{Method: "GET", Host: "gateway", Path: "/version", RawPath: "/version", Proto: "HTTP/1.1"}
	resp := client.Forward(ctx, r, upstream.Credentials{As: upstream.AsGateway})
	n := int64(len(resp.Body))
	var err error
	if resp.BodyTo != nil {
		n, err = resp.BodyTo.WriteTo(io.Discard)
	}
	if resp.Done != nil {
		resp.Done(n, err)
	}
	if err != nil {
		return 0
	}
	return resp.Status
}
