package upstream

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// waysTo is a client of servers that are behind relays.
func waysTo(t *testing.T, change func(*Limits), all ...*oneOf) (*Client, []*relay) {
	t.Helper()
	var ways []*relay
	for _, o := range all {
		ways = append(ways, newRelay(t, o))
	}
	c := all[0].client(t, func(o *Options) {
		for _, way := range ways {
			o.Servers = append(o.Servers, "https://"+way.Addr().String())
		}
		// Nothing else finds a dead connection in time.
		o.Limits = Limits{ServerCheck: checkEvery, PingTimeout: time.Minute}
		change(&o.Limits)
	})
	return c, ways
}

// TestServersLost: of what waits on connections that something on the way to all servers
// has forgotten, reads are made again on new ones, writes end, and feeds go on.
func TestServersLost(t *testing.T) { inBubble(t, testServersLost) }

func testServersLost(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c, ways := waysTo(t, func(*Limits) {}, a, b)
	servers := []*oneOf{a, b}
	for i, other := range servers { // each has connections of all kinds
		is := c.servers.Servers()[i].Standing
		other.unready.Store(true)
		eventually(t, "the server is not ready", func() bool { return is() == health.NotReady })
		for method, body := range map[string]string{"GET": "", "POST": "x"} {
			if status, body := do(t, c, method, "/api/v1/pods", body); status != 200 || !strings.HasPrefix(body, servers[1-i].name) {
				t.Fatalf("%s: %d %s", method, status, body)
			}
		}
		other.unready.Store(false)
		eventually(t, "the server is ready", func() bool { return is() == health.Ready })
	}
	accepted, ended := startWatch(testContext(t), c.Source())
	within(t, accepted, "the watch")
	time.Sleep(2 * checkEvery) // looks have connections, too
	for _, way := range ways {
		way.forget()
	}
	took := a.writes.Load() + b.writes.Load()
	var waiting sync.WaitGroup
	for range 4 {
		waiting.Go(func() {
			if status, body := do(t, c, "GET", "/api/v1/pods", ""); status != 200 {
				t.Errorf("a read: %d %s", status, body)
			}
		})
		waiting.Go(func() {
			if status, body := do(t, c, "POST", "/api/v1/pods", "x"); status != 504 || !strings.Contains(body, "it is not known") {
				t.Errorf("a write: %d %s", status, body)
			}
		})
	}
	waiting.Wait()
	if n := a.writes.Load() + b.writes.Load() - took; n != 0 {
		t.Errorf("writes that were lost were done %d times", n)
	}
	_ = within(t, ended, "the end of the watch")
	accepted, _ = startWatch(testContext(t), c.Source())
	within(t, accepted, "the watch after it")
	for range 2 {
		if status, body := do(t, c, "POST", "/api/v1/pods", "y"); status != 200 {
			t.Errorf("a write after it: %d %s", status, body)
		}
	}
}

// TestServersLostWhileAway: the same if there is no way at all for a while.
func TestServersLostWhileAway(t *testing.T) { inBubble(t, testServersLostWhileAway) }

func testServersLostWhileAway(t *testing.T) {
	a := newOneOf(t, "a")
	c, ways := waysTo(t, func(l *Limits) {
		l.ServerSilence, l.PingInterval, l.PingTimeout = silentAfter, time.Second, time.Second
	}, a)
	if status, _ := do(t, c, "POST", "/api/v1/pods", "x"); status != 200 {
		t.Fatalf("a write: %d", status)
	}
	time.Sleep(2 * checkEvery)
	far := c.servers.Servers()[0]
	ways[0].away.Store(true)
	ways[0].forget()
	responded := make(chan string, 1)
	go func() {
		status, body := do(t, c, "POST", "/api/v1/pods", "x")
		responded <- fmt.Sprint(status, body)
	}()
	eventually(t, "the silence is noticed", func() bool { return far.Standing() == health.Unresponsive })
	ways[0].away.Store(false)
	// By the pings of its connection.
	if got := within(t, responded, "the answer"); !strings.HasPrefix(got, "503") || !strings.Contains(got, "it is not known") {
		t.Errorf("a write: %s", got)
	}
	// A server that only stood still answers what it was asked before, however slow it is then.
	slow := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(silentAfter + silentAfter/2):
			a.respond(w, r)
		case <-r.Context().Done():
		}
	}
	for _, response := range []http.HandlerFunc{a.respond, slow} {
		eventually(t, "it is back", func() bool { return far.Standing() == health.Ready })
		a.does(response)
		a.ice.freeze()
		go func() {
			status, body := do(t, c, "POST", "/api/v1/pods", "x")
			responded <- fmt.Sprint(status, body)
		}()
		eventually(t, "the silence is noticed", func() bool { return far.Standing() == health.Unresponsive })
		a.ice.melt()
		if got := within(t, responded, "the answer"); got != "200a took x" {
			t.Errorf("a write: %s", got)
		}
	}
}

// TestServersLostFeed: the connection of feeds alone is forgotten.
func TestServersLostFeed(t *testing.T) { inBubble(t, testServersLostFeed) }

func testServersLostFeed(t *testing.T) {
	a := newOneOf(t, "a")
	c, ways := waysTo(t, func(l *Limits) { l.PingInterval = silentAfter }, a)
	accepted, ended := startWatch(testContext(t), c.Source())
	within(t, accepted, "the watch")
	time.Sleep(2 * checkEvery)
	a.seen.Lock()
	for _, r := range a.seen.requests {
		if r.URL.Query().Get("watch") == "true" {
			ways[0].lost.Store(r.RemoteAddr, true)
		}
	}
	a.seen.Unlock()
	_ = within(t, ended, "the end of the watch")
}

// relay passes bytes on to a server, but those of connections that it has forgotten.
type relay struct {
	net.Listener
	t     *testing.T
	to    string
	epoch atomic.Int64
	away  atomic.Bool // new ones are lost, too
	lost  sync.Map    // their addresses, as the server sees them
	conns sync.WaitGroup
}

func newRelay(t *testing.T, o *oneOf) *relay {
	l := listen(t, "")
	r := &relay{Listener: l, t: t, to: o.Listener.Addr().String()}
	r.conns.Go(r.run)
	t.Cleanup(func() {
		_ = l.Close()
		o.CloseClientConnections()
		r.conns.Wait()
	})
	return r
}

func (r *relay) forget() { r.epoch.Add(1) }

func (r *relay) run() {
	for {
		near, err := r.Accept()
		if err != nil {
			return
		}
		far, err := dial(r.t, r.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		epoch := r.epoch.Load()
		if r.away.Load() {
			epoch = -1
		}
		addr := far.LocalAddr().String()
		for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
			r.conns.Go(func() { r.pass(pair[0], pair[1], epoch, addr) })
		}
	}
}

func (r *relay) pass(from, to net.Conn, epoch int64, addr string) {
	defer func() { _, _ = from.Close(), to.Close() }()
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if _, lost := r.lost.Load(addr); lost || r.epoch.Load() != epoch {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
