package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// names is a Resolver.
type names struct{ addresses atomic.Pointer[[]netip.Addr] }

func (n *names) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	if a := n.addresses.Load(); a != nil {
		return *a, nil
	}
	return nil, errors.New("no such host")
}

func (n *names) lead(to ...string) {
	var addresses []netip.Addr
	for _, a := range to {
		addresses = append(addresses, netip.MustParseAddr(a))
	}
	n.addresses.Store(&addresses)
}

// syncBuffer takes a log.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func hosts(c *Client) (list []string) {
	for _, s := range c.servers.Servers() {
		list = append(list, s.Host())
	}
	return list
}

// TestServersByName: all addresses of a name are servers, and their certificates are good
// for the name.
func TestServersByName(t *testing.T) { inBubble(t, testServersByName) }

func testServersByName(t *testing.T) {
	s := newOneOf(t, "s")
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var dns names
	var log syncBuffer
	c := s.client(t, func(o *Options) {
		o.Servers = []string{"dns:///example.com:" + port} // of which httptest has a certificate
		o.Resolver, o.Limits = &dns, Limits{ServerCheck: checkEvery}
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	if status, _ := do(t, c, "GET", "/api/v1/pods", ""); status != 503 {
		t.Errorf("without any server: %d", status)
	}
	if c.CheckServers() == nil {
		t.Error("without any server all is well")
	}
	dns.lead("127.0.0.1", "::ffff:127.0.0.1", "127.0.0.2")
	want := []string{"127.0.0.1:" + port, "127.0.0.2:" + port}
	eventually(t, "the servers are found", func() bool { return slices.Equal(hosts(c), want) })
	if status, body := do(t, c, "GET", "/api/v1/pods", ""); status != 200 || body != "s" {
		t.Errorf("%d %s", status, body)
	}
	if r := s.last(t); r.Host != "example.com:"+port || r.TLS.ServerName != "example.com" {
		t.Errorf("the server was asked as %s, its certificate as %q", r.Host, r.TLS.ServerName)
	}
	for _, method := range []string{"GET", "POST"} {
		if status, body := do(t, c, method, "//api/v1/pods", ""); status != 200 {
			t.Errorf("a path that begins like an address: %d %s", status, body)
		}
	}
	saved := c.servers.Servers()[0]
	dns.lead("127.0.0.1")
	eventually(t, "one is left", func() bool { return len(hosts(c)) == 1 })
	if c.servers.Servers()[0] != saved {
		t.Errorf("servers %v", hosts(c))
	}
	dns.lead()
	time.Sleep(time.Minute) // names are resolved every 5 s
	if len(hosts(c)) != 1 || !strings.Contains(log.String(), "there is none") {
		t.Errorf("of an empty answer %v are left: %s", hosts(c), log.String())
	}
	// A certificate for another name is none.
	c = s.client(t, func(o *Options) {
		o.Servers, o.Resolver = []string{"dns:///example.org:" + port}, &dns
		dns.lead("127.0.0.1")
	})
	if status, _ := do(t, c, "GET", "/api/v1/pods", ""); status != 503 {
		t.Errorf("with a certificate for another name: %d", status)
	}
}

// TestServersBySlices: the endpoints of the Service kubernetes are the servers; the
// kubeconfig's own is for when there is no other.
func TestServersBySlices(t *testing.T) { inBubble(t, testServersBySlices) }

func testServersBySlices(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	var list atomic.Pointer[discoveryv1.EndpointSliceList]
	changed := make(chan struct{}, 1)
	serve := func(o *oneOf) {
		o.does(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices":
				o.respond(w, r)
			case r.URL.Query().Get("labelSelector") != "kubernetes.io/service-name=kubernetes":
				t.Errorf("asked for %s", r.URL.RawQuery)
			case r.URL.Query().Get("watch") == "true":
				w.(http.Flusher).Flush()
				select {
				case <-changed:
				case <-r.Context().Done():
				}
			default:
				_ = json.NewEncoder(w).Encode(list.Load())
			}
		})
	}
	serve(a)
	serve(b)
	list.Store(slice(t, a))
	c := a.client(t, func(o *Options) {
		o.Servers, o.Limits = []string{"endpointslices"}, Limits{ServerCheck: checkEvery}
		o.Config.ServerName = "example.com" // 127.0.0.1 would be good, too
	})
	addrA, addrB := a.Listener.Addr().String(), b.Listener.Addr().String()
	eventually(t, "the servers are found", func() bool { return slices.Equal(hosts(c), []string{addrA}) && watches(a) == 1 })
	list.Store(slice(t, b))
	changed <- struct{}{}
	eventually(t, "the change is seen", func() bool { return slices.Equal(hosts(c), []string{addrB, addrA}) })
	for range 4 {
		if status, body := do(t, c, "GET", "/api/v1/pods", ""); status != 200 || body != "b" {
			t.Errorf("%d %s", status, body)
		}
	}
	if r := b.last(t); r.TLS.ServerName != "example.com" {
		t.Errorf("the certificate was asked for as %q", r.TLS.ServerName)
	}
	b.gone()
	// Connections to it that are not known to be broken yet would take the write.
	eventually(t, "the server is down", func() bool { return c.serverAt(t, b).Standing() == health.Down })
	for range 2 {
		if status, body := do(t, c, "POST", "/api/v1/pods", "x"); status != 200 || body != "a took x" {
			t.Errorf("%d %s", status, body)
		}
	}
}

func slice(t *testing.T, at ...*oneOf) *discoveryv1.EndpointSliceList {
	t.Helper()
	list := &discoveryv1.EndpointSliceList{}
	for _, o := range at {
		host, text, err := net.SplitHostPort(o.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		name, port := "https", int32(n)
		list.Items = append(list.Items, discoveryv1.EndpointSlice{
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}}},
		})
	}
	return list
}

// TestServersUnsuited: what several servers cannot be made of.
func TestServersUnsuited(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	for _, test := range []struct {
		host    string
		servers []string
		want    string
	}{
		{s.URL, []string{"https://a/b"}, "upstream servers: the list must hold addresses without path"},
		{s.URL + "/k8s/clusters/c1", []string{"https://a"}, "upstream servers: the kubeconfig's server has a path, /k8s/clusters/c1,"},
		{"http://127.0.0.1:8001", []string{"endpointslices"}, "upstream servers: endpointslices need a kubeconfig whose server is verified"},
	} {
		config := s.config()
		config.Host = test.host
		_, err := New(Options{Config: config, Servers: test.servers})
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%v: %v", test.servers, err)
		}
	}
	config := s.config()
	config.Insecure, config.CAData = true, nil
	if c, err := New(Options{Config: config, Servers: []string{"endpointslices"}}); err == nil {
		c.Close()
		t.Error("who writes endpoint slices is sent the credentials")
	}
}
