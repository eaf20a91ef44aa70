package upstream

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/proxy/upstream/balance"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// oneOf is one of several fake API servers. It answers with its name, and can be told to
// be unready or frozen, and what to do with requests.
type oneOf struct {
	*server
	name      string
	ice       freezer
	unready   atomic.Bool
	stuck     atomic.Bool  // it does not say whether it is ready
	requested atomic.Int64 // but for /readyz and turns
	writes    atomic.Int64
	handle    atomic.Pointer[http.HandlerFunc]
}

func newOneOf(t *testing.T, name string, options ...serverOption) *oneOf {
	o := &oneOf{name: name}
	o.server = newServer(t, func(w http.ResponseWriter, r *http.Request) {
		o.ice.wait(r.Context())
		switch r.URL.Path {
		case turnPath:
			_, _ = io.WriteString(w, o.Listener.Addr().String())
			return
		case "/readyz":
			if o.stuck.Load() {
				<-r.Context().Done()
				panic(http.ErrAbortHandler)
			}
			if o.unready.Load() {
				w.WriteHeader(500)
			}
			return
		}
		o.requested.Add(1)
		if h := o.handle.Load(); h != nil {
			(*h)(w, r)
			return
		}
		o.respond(w, r)
	}, options...)
	t.Cleanup(o.ice.melt)
	return o
}

func (o *oneOf) respond(w http.ResponseWriter, r *http.Request) {
	if !pool.Safe(r.Method) {
		o.writes.Add(1)
		body, _ := io.ReadAll(r.Body)
		if r.ProtoMajor != 2 {
			body = []byte("something in a way that may end in doubt")
		}
		_, _ = io.WriteString(w, o.name+" took "+string(body))
		return
	}
	if r.URL.Query().Get("watch") == "true" {
		quietWatch(w, r)
		return
	}
	_, _ = io.WriteString(w, o.name)
}

// does makes o answer all but /readyz by h.
func (o *oneOf) does(h http.HandlerFunc) { o.handle.Store(&h) }

// gone closes o with all its connections.
func (o *oneOf) gone() {
	o.CloseClientConnections()
	o.Close()
}

const (
	checkEvery   = 150 * time.Millisecond
	silentAfter  = 600 * time.Millisecond
	silentForAll = 2 * time.Second
)

// several is a client of several servers.
func several(t *testing.T, all ...*oneOf) *Client {
	t.Helper()
	return all[0].client(t, func(o *Options) {
		for _, one := range all {
			o.Servers = append(o.Servers, one.URL)
		}
		o.Limits = Limits{ServerCheck: checkEvery, ServerSilence: silentAfter, SilenceTimeout: silentForAll}
	})
}

func do(t *testing.T, c *Client, method, target, body string) (int, string) {
	t.Helper()
	r := request(method, target)
	if body != "" {
		withBody(r, body)
	}
	resp := c.Forward(testContext(t), r, Credentials{As: AsGateway})
	return resp.Status, finish(t, resp)
}

// eventually fails the test if ok does not become true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal(what + " did not happen")
		}
	}
}

func (c *Client) serverAt(t *testing.T, o *oneOf) *balance.Server {
	t.Helper()
	for _, s := range c.servers.Servers() {
		if s.Host() == o.Listener.Addr().String() {
			return s
		}
	}
	t.Fatal("no such server")
	return nil
}

// turns makes the next request begin with o, if nothing else counts. All servers must be up.
func (c *Client) turns(t *testing.T, o *oneOf) {
	t.Helper()
	all := c.servers.Servers()
	at := slices.Index(all, c.serverAt(t, o))
	before := all[(at+len(all)-1)%len(all)].Host()
	for range 10 * len(all) {
		if _, body := do(t, c, "GET", turnPath, ""); body == before {
			return
		}
	}
	t.Fatalf("the turn does not come to %s", o.name)
}

// turnPath is where a fake server tells its address. They take turns at it.
const turnPath = "/healthz/turn"

// only has requests go to o while f runs: the others are not ready meanwhile.
func only(t *testing.T, c *Client, o *oneOf, others []*oneOf, f func()) {
	t.Helper()
	for _, other := range others {
		other.unready.Store(true)
		eventually(t, "the server is not ready", func() bool { return c.serverAt(t, other).Standing() == health.NotReady })
	}
	eventually(t, "the server is ready", func() bool { return c.serverAt(t, o).Standing() == health.Ready })
	f()
	for _, other := range others {
		other.unready.Store(false)
	}
}

// outstanding is how many requests and connections are under way to a server.
func (c *Client) outstanding(t *testing.T, o *oneOf) float64 {
	return serverMetric(t, c, "kubeweir_upstream_server_outstanding_requests", o)
}

// serverMetric is the value of a metric for a server.
func serverMetric(t *testing.T, c *Client, name string, o *oneOf) float64 {
	t.Helper()
	families, err := c.registry(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && m.Label[0].GetValue() == o.Listener.Addr().String() {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// registry has the metrics of the client's servers.
func (c *Client) registry(t *testing.T) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := c.metrics.servers.Register(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestServersShare: requests are spread, and those that last count.
func TestServersShare(t *testing.T) { inBubble(t, testServersShare) }

func testServersShare(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	got := make(map[string]int)
	for range 10 {
		_, body := do(t, c, "GET", "/api/v1/pods", "")
		got[body]++
	}
	if got["a"] != 5 || got["b"] != 5 {
		t.Errorf("answers came from %v", got)
	}
	release := make(chan struct{})
	a.does(func(_ http.ResponseWriter, _ *http.Request) { <-release })
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer close(release)
	for range 3 {
		c.turns(t, a)
		before := c.outstanding(t, a)
		if before < 1 {
			waiting.Go(func() { do(t, c, "GET", "/api/v1/pods", "") })
			eventually(t, "the request", func() bool { return c.outstanding(t, a) > before })
			continue
		}
		if _, body := do(t, c, "GET", "/api/v1/pods", ""); body != "b" {
			t.Errorf("a request went to the busier server: %q", body)
		}
	}
}

// TestServersUpgrade: what is upgraded goes to one that is there, and stays although that
// is not ready any more, or silent.
func TestServersUpgrade(t *testing.T) { inBubble(t, testServersUpgrade) }

func testServersUpgrade(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	b.does(switching(t, plainSwitch, func(conn net.Conn, in *bufio.Reader) { _, _ = io.Copy(conn, in) }))
	c.turns(t, a)
	a.gone()
	conn, in := dialUpgrade(t, front(t, c, Credentials{As: AsGateway}).URL, "")
	say := func(word string) {
		t.Helper()
		if _, err := io.WriteString(conn, word); err != nil {
			t.Fatal(err)
		}
		heard := make([]byte, len(word))
		if _, err := io.ReadFull(in, heard); err != nil || string(heard) != word {
			t.Fatalf("%q %v", heard, err)
		}
	}
	if head, err := http.ReadResponse(in, nil); err != nil || head.StatusCode != 101 {
		t.Fatal(head, err)
	}
	say("hello")
	b.unready.Store(true)
	eventually(t, "the server is not ready", func() bool { return c.serverAt(t, b).Standing() == health.NotReady })
	say("still")
	b.ice.freeze()
	one := c.serverAt(t, b)
	eventually(t, "the server is silent", func() bool { return one.Standing() == health.Unresponsive })
	time.Sleep(2 * silentForAll) // all else that waits for it has ended
	say("there")
	if n := c.outstanding(t, b); n != 1 {
		t.Errorf("%v connections are counted", n)
	}
	_ = conn.Close()
	eventually(t, "the connection ends", func() bool { return c.outstanding(t, b) == 0 })
}

// TestServersFeeds: feeds have one server, and another when that is not ready, before
// it ends them; they do not go back.
func TestServersFeeds(t *testing.T) { inBubble(t, testServersFeeds) }

func testServersFeeds(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	ctx := testContext(t)
	var accepted [3]chan struct{}
	var ended [3]chan error
	for i := range accepted {
		accepted[i], ended[i] = startWatch(ctx, c.Source())
		within(t, accepted[i], "the watch")
	}
	held, other := a, b
	if watches(b) > 0 {
		held, other = b, a
	}
	if n := watches(held); n != 3 {
		t.Errorf("%d of 3 feeds are at the preferred server", n)
	}
	held.unready.Store(true)
	for i := range ended {
		if err := within(t, ended[i], "the end of the watch"); err == nil || !strings.Contains(err.Error(), "the feeds go to another API server") {
			t.Errorf("the watch ended: %v", err)
		}
	}
	again, _ := startWatch(ctx, c.Source())
	within(t, again, "the watch")
	if watches(other) != 1 {
		t.Error("the feed did not go to the other server")
	}
	held.unready.Store(false)
	eventually(t, "the server is back", func() bool { return c.serverAt(t, held).Standing() == health.Ready })
	if c.preferred(t, held) {
		t.Error("the feeds go to and fro")
	}
	for range 2 { // who takes any state sees what the feeds see
		if _, body := do(t, c, "GET", "/api/v1/pods?resourceVersion=0", ""); body != other.name {
			t.Errorf("a read of any version went to %s", body)
		}
	}
}

// preferred reports whether feeds go to o.
func (c *Client) preferred(t *testing.T, o *oneOf) bool {
	return serverMetric(t, c, "kubeweir_upstream_server_preferred", o) != 0
}

func watches(o *oneOf) (n int) {
	o.seen.Lock()
	defer o.seen.Unlock()
	for _, r := range o.seen.requests {
		if r.URL.Query().Get("watch") == "true" {
			n++
		}
	}
	return n
}

// TestServersNewest: a server that is behind is told from a cluster that went back.
func TestServersNewest(t *testing.T) { inBubble(t, testServersNewest) }

func testServersNewest(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	at := func(version string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"`+version+`"},"items":[]}`)
		}
	}
	held, other := a, b
	if c.preferred(t, b) {
		held, other = b, a
	}
	held.does(at("7"))
	other.does(at("9"))
	src := c.Source()
	current, err := src.CurrentVersion(testContext(t), pods())
	if err != nil || current != 7 {
		t.Errorf("the version of the feeds' server: %d %v", current, err)
	}
	newest, err := src.NewestVersion(testContext(t), pods())
	if err != nil || newest != 9 {
		t.Errorf("the newest version: %d %v", newest, err)
	}
	other.does(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	if newest, err := src.NewestVersion(testContext(t), pods()); err == nil || newest != 7 {
		t.Errorf("the newest version of those that tell theirs: %d %v", newest, err)
	}
	if _, err := a.client(t).Source().NewestVersion(testContext(t), pods()); !errors.Is(err, source.ErrUnsupported) {
		t.Errorf("of one server: %v", err)
	}
}
