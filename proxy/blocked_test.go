package proxy

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// TestBlocked: a user agent that is blocked gets nothing but when to come back, until its time is over or it is
// unblocked, and what it has open ends.
func TestBlocked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		blocked := policy.NewBlocked(nil)
		b := newGatewayBench(t, func(o *Options) { o.Blocked = blocked })
		b.startCounting()
		const list = "GET /api/v1/pods?resourceVersion=0"
		agents := map[string]string{"k9s/1": "User-Agent: k9s/1", "k9s/2": "User-Agent: k9s/2", "kubectl": "User-Agent: kubectl/v1.36.0", "none": "X: y"}
		expect := func(when string, rejected ...string) {
			t.Helper()
			for name, header := range agents {
				requested := b.upstream.count()
				resp := b.count(list, header, "Authorization: Bearer "+when)
				is := strings.Contains(strings.Join(rejected, " "), name)
				if (resp.Status == 429) != is || is && (resp.Header.Get("Retry-After") == "" || b.upstream.count() != requested || !strings.Contains(string(resp.Body), "k9s*")) {
					t.Errorf("%s: %s got %d %s", when, name, resp.Status, resp.Body)
				}
			}
		}
		expect("before")

		watches := make(map[string]*countingWriter)
		open := func(name, line string) {
			resp := b.count(line, agents[name])
			watches[name+" "+line] = &countingWriter{}
			resp.Stream.Start(watches[name+" "+line])
		}
		const cached, forwarded = "GET /api/v1/pods?watch=1&resourceVersion=0", "GET /api/v1/events?watch=1"
		b.upstream.response = func(*api.Request) *api.Response {
			return &api.Response{Status: 200, Stream: idleStream{}}
		}
		for name := range agents {
			open(name, cached)
			open(name, forwarded)
		}
		b.upstream.response = func(*api.Request) *api.Response {
			return &api.Response{Status: 101, Upgrade: func(conn net.Conn) { _, _ = io.Copy(conn, conn) }}
		}
		exec := b.gateway.Serve(t.Context(), request("POST /api/v1/namespaces/default/pods/a/exec", agents["k9s/1"], "Upgrade: SPDY/3.1"))
		here, there := net.Pipe()
		go exec.Upgrade(there)

		if err := blocked.Block("k9s*", time.Now().Add(30*time.Minute)); err != nil {
			t.Fatal(err)
		}
		b.upstream.response = nil
		time.Sleep(2 * time.Second)
		expect("blocked", "k9s/1", "k9s/2")
		for name, w := range watches {
			if _, closed := w.state(); closed != strings.HasPrefix(name, "k9s") {
				t.Errorf("%s: closed %t", name, closed)
			}
		}
		if _, err := here.Read(make([]byte, 1)); err == nil {
			t.Error("what was upgraded goes on")
		}
		if l := blocked.List(); len(l) != 1 || l[0].Rejected != 2 || l[0].Until.Sub(l[0].Since) != 30*time.Minute {
			t.Errorf("%+v", l)
		}
		time.Sleep(30*time.Minute - 3*time.Second)
		expect("just before the end", "k9s/1", "k9s/2")
		time.Sleep(time.Second)
		expect("after its time")
		if l := blocked.List(); len(l) != 0 {
			t.Errorf("%+v", l)
		}

		if err := blocked.Block("k9s*", time.Time{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Hour)
		expect("for good", "k9s/1", "k9s/2")
		if !blocked.Unblock("k9s*") || blocked.Unblock("k9s*") {
			t.Error("unblocked once")
		}
		expect("unblocked")
	})
}

// TestBlockedRetry: a client is to come back when the time is over, and in a minute if that is long.
func TestBlockedRetry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		blocked := policy.NewBlocked(nil)
		b := newGatewayBench(t, func(o *Options) { o.Blocked = blocked })
		for until, want := range map[time.Duration]string{0: "60", time.Hour: "60", 90 * time.Millisecond: "1", 5500 * time.Millisecond: "6"} {
			var at time.Time
			if until > 0 {
				at = time.Now().Add(until)
			}
			if err := blocked.Block("a*b", at); err != nil {
				t.Fatal(err)
			}
			if resp := b.count("GET /version", "User-Agent: a-b"); resp.Status != 429 || resp.Header.Get("Retry-After") != want {
				t.Errorf("%v: %d, %s", until, resp.Status, resp.Header.Get("Retry-After"))
			}
		}
	})
}

// TestBlockedLong: a user agent that is longer than what is kept of it is known by what it is called, and by what the
// console shows of it.
func TestBlockedLong(t *testing.T) {
	long := "Mozilla/5.0 " + strings.Repeat("(KHTML, like Gecko) ", 8) + "dashboard/1.0"
	for _, pattern := range []string{long, "*dashboard/*", usage.Bounded(long)} {
		bubble.Test(t, func(t *testing.T) {
			blocked := policy.NewBlocked(nil)
			b := newGatewayBench(t, func(o *Options) { o.Blocked = blocked })
			b.startCounting()
			resp := b.count("GET /api/v1/pods?watch=1&resourceVersion=0", "User-Agent: "+long)
			w := &countingWriter{}
			resp.Stream.Start(w)
			if err := blocked.Block(pattern, time.Time{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if resp := b.count("GET /version", "User-Agent: "+long); resp.Status != 429 {
				t.Errorf("%q: %d", pattern, resp.Status)
			}
			if _, closed := w.state(); !closed {
				t.Errorf("%q: its watch goes on", pattern)
			}
		})
	}
}

// idleStream is a stream of nothing.
type idleStream struct{}

func (idleStream) Start(api.StreamWriter) {}
func (idleStream) Stop()                  {}

// startCounting has the gateway count what goes on until the test ends.
func (b *gatewayBench) startCounting() {
	go b.gateway.CountUsage(b.t.(*testing.T).Context())
}
