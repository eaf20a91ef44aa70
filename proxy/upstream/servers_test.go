package upstream

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
)

// oneOf is one of several fake API servers. It answers with its name, and can be told to
// be unready or frozen, and what to do with requests.
type oneOf struct {
	*server
	name    string
	ice     freezer
	unready atomic.Bool
	stuck   atomic.Bool  // it does not say whether it is ready
	asked   atomic.Int64 // but for /readyz
	writes  atomic.Int64
	handle  atomic.Pointer[http.HandlerFunc]
}

func newOneOf(t *testing.T, name string, options ...serverOption) *oneOf {
	o := &oneOf{name: name}
	o.server = newServer(t, func(w http.ResponseWriter, r *http.Request) {
		o.ice.wait(r.Context())
		if r.URL.Path == "/readyz" {
			if o.stuck.Load() {
				<-r.Context().Done()
			}
			if o.unready.Load() {
				w.WriteHeader(500)
			}
			return
		}
		o.asked.Add(1)
		if h := o.handle.Load(); h != nil {
			(*h)(w, r)
			return
		}
		o.answer(w, r)
	}, options...)
	t.Cleanup(o.ice.melt)
	return o
}

func (o *oneOf) answer(w http.ResponseWriter, r *http.Request) {
	if !safe(r.Method) {
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

// breaks ends the connection of a request that was read.
func breaks(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// gone closes o with all its connections.
func (o *oneOf) gone() {
	o.CloseClientConnections()
	o.Close()
}

const (
	checkEvery   = 150 * time.Millisecond
	silentAfter  = 300 * time.Millisecond
	silentForAll = time.Second
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

func ask(t *testing.T, c *Client, method, target, body string) (int, string) {
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

func (c *Client) serverAt(t *testing.T, o *oneOf) *apiServer {
	t.Helper()
	for _, s := range *c.servers.all.Load() {
		if s.base.Host == o.Listener.Addr().String() {
			return s
		}
	}
	t.Fatal("no such server")
	return nil
}

// turns makes the next request begin with o, if nothing else counts.
func (c *Client) turns(t *testing.T, o *oneOf) {
	t.Helper()
	all := *c.servers.all.Load()
	for i := range all {
		if all[i] == c.serverAt(t, o) {
			c.servers.turn.Store(uint32(len(all) + i - 1))
		}
	}
}

// TestServersShare: requests are spread, and those that last count.
func TestServersShare(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	got := make(map[string]int)
	for range 10 {
		_, body := ask(t, c, "GET", "/api/v1/pods", "")
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
		before := c.serverAt(t, a).short.Load()
		if before < 1 {
			waiting.Go(func() { ask(t, c, "GET", "/api/v1/pods", "") })
			eventually(t, "the request", func() bool { return c.serverAt(t, a).short.Load() > before })
			continue
		}
		if _, body := ask(t, c, "GET", "/api/v1/pods", ""); body != "b" {
			t.Errorf("a request went to the busier server: %q", body)
		}
	}
}

// TestServersRefused: what could not be sent goes to the next, also a write, with its body.
func TestServersRefused(t *testing.T) {
	large := strings.Repeat("x", 2*smallUpload)
	for _, body := range []string{"small", large} {
		a, b := newOneOf(t, "a"), newOneOf(t, "b")
		c := several(t, a, b)
		a.gone()
		c.turns(t, a)
		if status, got := ask(t, c, "POST", "/api/v1/pods", body); status != 200 || got != "b took "+body || b.writes.Load() != 1 {
			t.Errorf("a write of %d bytes: %d %.40q, %d writes", len(body), status, got, b.writes.Load())
		}
		c.turns(t, a)
		if status, got := ask(t, c, "GET", "/api/v1/pods", ""); status != 200 || got != "b" {
			t.Errorf("a read: %d %q", status, got)
		}
		eventually(t, "the server is down", func() bool { return standing(c.serverAt(t, a).is.Load()) == down })
		if ok, _ := c.Reachable(); !ok {
			t.Error("with one server left the upstream is away")
		}
	}
}

// TestServersUpgrade: what is upgraded goes to one that is there, and stays although that
// is not ready any more, or silent.
func TestServersUpgrade(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	b.does(switching(t, plainSwitch, func(conn net.Conn, in *bufio.Reader) { _, _ = io.Copy(conn, in) }))
	a.gone()
	c.turns(t, a)
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
	eventually(t, "the server is not ready", func() bool { return standing(c.serverAt(t, b).is.Load()) == unready })
	say("still")
	b.ice.freeze()
	one := c.serverAt(t, b)
	eventually(t, "the server is silent", func() bool { return standing(one.is.Load()) == silent })
	one.abandon()
	say("there")
	if n := one.short.Load(); n != 1 {
		t.Errorf("%d connections are counted", n)
	}
	_ = conn.Close()
	eventually(t, "the connection ends", func() bool { return one.short.Load() == 0 })
}

// TestServersAllGone: it is known at once, and so is that one is back.
func TestServersAllGone(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	addr := b.Listener.Addr().String()
	c := several(t, a, b)
	a.gone()
	b.gone()
	eventually(t, "the upstream is away", func() bool { ok, _ := c.Reachable(); return !ok })
	// For longer than silence is borne: who refuses connections is tried all the same.
	since := time.Now()
	eventually(t, "much time", func() bool { return time.Since(since) > silentForAll*3/2 })
	if c.life.gone.Load() != 0 {
		t.Error("requests are not tried any more")
	}
	if status, body := ask(t, c, "POST", "/api/v1/pods", "x"); status != 503 || strings.Contains(body, "not known") {
		t.Errorf("a write to nobody: %d %s", status, body)
	}
	newOneOf(t, "b again", at(t, addr))
	eventually(t, "the upstream is back", func() bool { ok, _ := c.Reachable(); return ok })
	if status, body := ask(t, c, "GET", "/api/v1/pods", ""); status != 200 || body != "b again" {
		t.Errorf("a read: %d %s", status, body)
	}
}

// TestServersUntrusted: a server whose certificate is not good gets nothing.
func TestServersUntrusted(t *testing.T) {
	cert, key := certificate(t, "impostor")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	b := newOneOf(t, "b")
	a := newOneOf(t, "a", func(s *httptest.Server) { s.TLS.Certificates = []tls.Certificate{pair} })
	c := several(t, b, a)
	for range 4 {
		c.turns(t, a)
		if status, got := ask(t, c, "POST", "/api/v1/pods", "x"); status != 200 || got != "b took x" {
			t.Errorf("a write: %d %q", status, got)
		}
	}
	if a.count() != 0 {
		t.Errorf("a server with a wrong certificate got %d requests", a.count())
	}
}

// TestServersBreak: a read that was not answered goes to the next, a write does not.
func TestServersBreak(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	a.does(breaks)
	c.turns(t, a)
	if status, got := ask(t, c, "GET", "/api/v1/pods", ""); status != 200 || got != "b" {
		t.Errorf("a read: %d %q", status, got)
	}
	c.turns(t, a)
	status, got := ask(t, c, "POST", "/api/v1/pods", "x")
	if status != 503 || !strings.Contains(got, "it is not known whether the request was applied") || b.writes.Load() != 0 {
		t.Errorf("a write: %d %q, %d at the other", status, got, b.writes.Load())
	}
	before := b.asked.Load()
	c.turns(t, a)
	if status, _ := ask(t, c, "GET", "/api/v1/namespaces/x/services/y/proxy/", ""); status != 503 || b.asked.Load() != before {
		t.Errorf("a read of nobody knows what was sent again: %d", status)
	}
	// Connections that break again and again make a server one to avoid, however ready.
	for range brokenMost {
		c.turns(t, a)
		ask(t, c, "GET", "/api/v1/pods", "")
	}
	for range 4 {
		c.turns(t, a)
		if status, got := ask(t, c, "POST", "/api/v1/pods", "x"); status != 200 || got != "b took x" {
			t.Errorf("a write: %d %q", status, got)
		}
	}
}

// TestServersBrokenUpload: that a client's body breaks says nothing of servers.
func TestServersBrokenUpload(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	for range 3 * brokenMost {
		r := request("POST", "/api/v1/pods")
		r.Body, r.ContentLength = io.MultiReader(strings.NewReader("begun"), &failing{io.ErrUnexpectedEOF}), 2*smallUpload
		resp := c.Forward(testContext(t), r, Credentials{As: AsGateway})
		if finish(t, resp); resp.Status != 400 {
			t.Errorf("a body that breaks: %d", resp.Status)
		}
	}
	for _, o := range []*oneOf{a, b} {
		if is := c.serverAt(t, o).now(time.Now().UnixNano()); is != ready {
			t.Errorf("%s is %v", o.name, is)
		}
	}
}

// TestServersReview: a review that was not answered is made again elsewhere, for it changes nothing.
func TestServersReview(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	a.does(breaks)
	b.does(func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		review.Status.Authenticated = review.Spec.Token == "secret"
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&review)
	})
	cfg, client := c.ClientGo()
	cfg.ContentType = "application/json"
	set, err := kubernetes.NewForConfigAndClient(cfg, client)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.turns(t, a)
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "secret"}}
		review.APIVersion, review.Kind = "authentication.k8s.io/v1", "TokenReview"
		review, err = set.AuthenticationV1().TokenReviews().Create(testContext(t), review, metav1.CreateOptions{})
		if err != nil || !review.Status.Authenticated {
			t.Errorf("the review: %v %v", review, err)
		}
	}
}

// TestServersNotices: what a server says that it did not do goes to the next.
func TestServersNotices(t *testing.T) {
	status := func(code int, message string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"`+message+`"}`, code)
		}
	}
	for _, test := range []struct {
		name        string
		handler     http.HandlerFunc
		read, write int
	}{
		{"shutting down, early", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "5")
			http.Error(w, "The apiserver is shutting down, please try again later.", http.StatusTooManyRequests)
		}, 200, 200},
		{"shutting down, late", status(503, "apiserver is shutting down"), 200, 200},
		{"starting", status(503, "the request has been made before all known HTTP paths have been installed, please try again"), 200, 200},
		{"filling its cache", status(429, "storage is (re)initializing"), 200, 429},
		{"behind", status(504, "Too large resource version: 10, current: 9"), 200, 504},
		{"busy", status(429, "too many requests, please try again later"), 429, 429},
		{"out of order", status(503, "etcdserver: no leader"), 503, 503},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := newOneOf(t, "a"), newOneOf(t, "b")
			c := several(t, a, b)
			a.does(test.handler)
			c.turns(t, a)
			if status, body := ask(t, c, "GET", "/api/v1/pods?resourceVersion=10", ""); status != test.read {
				t.Errorf("a read: %d %s", status, body)
			}
			c.turns(t, a)
			if status, body := ask(t, c, "POST", "/api/v1/pods", "x"); status != test.write {
				t.Errorf("a write: %d %s", status, body)
			}
			if want := int64(0); test.write == 200 {
				want = 1
				if b.writes.Load() != want {
					t.Errorf("%d writes", b.writes.Load())
				}
			}
			// With nobody to go to it is the answer.
			b.does(test.handler)
			first, _ := ask(t, c, "GET", "/api/v1/pods?resourceVersion=10", "")
			if first < 429 {
				t.Errorf("an answer of nobody: %d", first)
			}
		})
	}
}

// TestServersGoAway: a request that is above the last that a server takes goes to the next.
func TestServersGoAway(t *testing.T) {
	b := newOneOf(t, "b")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var seen atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		var conns sync.WaitGroup
		defer conns.Wait()
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { leaveStreams(tls.Server(nc, b.TLS), &seen, l) })
		}
	}()
	defer func() { _ = l.Close(); <-done }()
	c := b.client(t, func(o *Options) {
		o.Servers = []string{b.URL, "https://" + l.Addr().String()}
		o.Limits = Limits{ServerCheck: time.Hour}
	})
	c.servers.turn.Store(2) // the other one is the second
	req, err := http.NewRequestWithContext(testContext(t), "POST", b.URL+"/api/v1/pods", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.own.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || string(body) != "b took x" {
		t.Fatalf("%q %v", body, err)
	}
	if b.writes.Load() != 1 || seen.Load() != 1 {
		t.Errorf("%d writes; %d streams were refused", b.writes.Load(), seen.Load())
	}
}

// leaveStreams refuses the first stream of a connection by GOAWAY, and then closes it and
// the listener.
func leaveStreams(conn net.Conn, seen *atomic.Int64, l net.Listener) {
	defer func() { _ = conn.Close() }()
	if tc, ok := conn.(*tls.Conn); ok && (tc.Handshake() != nil || tc.ConnectionState().NegotiatedProtocol != "h2") {
		// A look.
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	if framer.WriteSettings() != nil {
		return
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if f, ok := frame.(*http2.SettingsFrame); ok && !f.IsAck() && framer.WriteSettingsAck() != nil {
			return
		}
		if _, ok := frame.(*http2.HeadersFrame); ok {
			seen.Add(1)
			_ = l.Close()
			_ = framer.WriteGoAway(0, http2.ErrCodeNo, nil)
		}
	}
}

// TestServersFrozen: reads that wait for a server of which nothing is heard go to the
// next, a write that was sent is not, and ends in time; the server is found again.
func TestServersFrozen(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	frozen := c.serverAt(t, a)
	type answer struct {
		status int
		body   string
	}
	answers := make(chan answer, 2)
	// Both are sent while the server seems well, and the other is busier.
	a.ice.freeze()
	c.serverAt(t, b).short.Add(10)
	c.serverAt(t, b).long.Add(10)
	waiting := func() int64 { return frozen.short.Load() + frozen.long.Load() }
	for _, body := range []string{"", "x"} {
		method, before := "GET", waiting()
		if body != "" {
			method = "POST"
		}
		go func() {
			status, body := ask(t, c, method, "/api/v1/pods", body)
			answers <- answer{status, body}
		}()
		eventually(t, "the request", func() bool { return waiting() > before })
	}
	if got := within(t, answers, "the read"); got.status != 200 || got.body != "b" {
		t.Errorf("a read: %v", got)
	}
	if got := within(t, answers, "the write"); got.status != 504 || !strings.Contains(got.body, "it is not known") || b.writes.Load() != 0 {
		t.Errorf("a write: %v, %d at the other", got, b.writes.Load())
	}
	for range 4 {
		if _, got := ask(t, c, "POST", "/api/v1/pods", "x"); got != "b took x" {
			t.Errorf("a write: %s", got)
		}
	}
	a.ice.melt()
	eventually(t, "the server is back", func() bool { return standing(frozen.is.Load()) == ready })
	if frozen.load(false, time.Now().UnixNano()) < 2 {
		t.Error("a server that came back has its whole share at once")
	}
}

// TestServersStore: while the store behind all servers stands still, none can say whether
// it is ready. All are alive, and asked.
func TestServersStore(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	a.stuck.Store(true)
	b.stuck.Store(true)
	for _, o := range []*oneOf{a, b} {
		eventually(t, "the server is not ready", func() bool { return standing(c.serverAt(t, o).is.Load()) != ready })
	}
	for range 4 {
		if status, body := ask(t, c, "GET", "/api/v1/pods", ""); status != 200 {
			t.Errorf("a read: %d %s", status, body)
		}
	}
	for _, o := range []*oneOf{a, b} {
		if is := standing(c.serverAt(t, o).is.Load()); is != unready {
			t.Errorf("%s is %v", o.name, is)
		}
	}
	if ok, _ := c.Reachable(); !ok || c.CheckServers() != nil {
		t.Error("the upstream is away")
	}
	accepted, _ := startWatch(testContext(t), c.Source())
	within(t, accepted, "the watch")
}

// TestServersForgotten: connections that something on the way has forgotten are not used
// again when the server answers on a new one.
func TestServersForgotten(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	way := newRelay(t, a)
	c := b.client(t, func(o *Options) {
		o.Servers = []string{"https://" + way.Addr().String(), b.URL}
		o.Limits = Limits{ServerCheck: checkEvery, ServerSilence: silentAfter, SilenceTimeout: silentForAll}
	})
	far := (*c.servers.all.Load())[0]
	c.servers.turn.Store(1)
	if status, body := ask(t, c, "POST", "/api/v1/pods", "x"); status != 200 || body != "a took x" {
		t.Fatalf("a write: %d %s", status, body)
	}
	way.forget()
	eventually(t, "the silence is noticed", func() bool { return standing(far.is.Load()) != ready })
	eventually(t, "the server is back", func() bool { return standing(far.is.Load()) == ready })
	c.serverAt(t, b).long.Add(100)
	if status, body := ask(t, c, "POST", "/api/v1/pods", "y"); status != 200 || body != "a took y" {
		t.Errorf("a write: %d %s", status, body)
	}
}

// relay passes bytes on to a server, but those of connections that it has forgotten.
type relay struct {
	net.Listener
	to    string
	epoch atomic.Int64
	conns sync.WaitGroup
}

func newRelay(t *testing.T, o *oneOf) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l, to: o.Listener.Addr().String()}
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
		far, err := net.Dial("tcp", r.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		epoch := r.epoch.Load()
		for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
			r.conns.Go(func() { r.pass(pair[0], pair[1], epoch) })
		}
	}
}

func (r *relay) pass(from, to net.Conn, epoch int64) {
	defer func() { _, _ = from.Close(), to.Close() }()
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if r.epoch.Load() != epoch {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// TestServersSlowProxy: what a service says through the proxy comes as it comes, whatever
// its status.
func TestServersSlowProxy(t *testing.T) {
	a := newOneOf(t, "a")
	c := several(t, a)
	release := make(chan struct{})
	var once sync.Once
	defer once.Do(func() { close(release) })
	a.does(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "begun")
		w.(http.Flusher).Flush()
		<-release
	})
	for _, name := range []string{"proxy", "%70roxy"} {
		answered := make(chan *api.Response, 1)
		go func() {
			answered <- c.Forward(testContext(t), request("GET", "/api/v1/namespaces/x/services/y/"+name+"/"), Credentials{As: AsGateway})
		}()
		resp := within(t, answered, "the answer")
		defer finish(t, resp)
		if resp.Status != http.StatusServiceUnavailable {
			t.Errorf("%d", resp.Status)
		}
	}
	once.Do(func() { close(release) })
}

// TestServersFeeds: feeds have one server, and another when that is not ready, before
// it ends them; they do not go back.
func TestServersFeeds(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	ctx := testContext(t)
	first := c.servers.preferred.Load()
	var accepted [3]chan struct{}
	var ended [3]chan error
	for i := range accepted {
		accepted[i], ended[i] = startWatch(ctx, c.Source())
		within(t, accepted[i], "the watch")
	}
	held, other := a, b
	if first == c.serverAt(t, b) {
		held, other = b, a
	}
	if n := watches(held); n != 3 {
		t.Errorf("%d of 3 feeds are at the preferred server", n)
	}
	held.unready.Store(true)
	for i := range ended {
		if err := within(t, ended[i], "the end of the watch"); err == nil || !strings.Contains(err.Error(), errMoved.Error()) {
			t.Errorf("the watch ended: %v", err)
		}
	}
	again, _ := startWatch(ctx, c.Source())
	within(t, again, "the watch")
	if watches(other) != 1 {
		t.Error("the feed did not go to the other server")
	}
	held.unready.Store(false)
	eventually(t, "the server is back", func() bool { return standing(first.is.Load()) == ready })
	if c.servers.preferred.Load() == first {
		t.Error("the feeds go to and fro")
	}
	for range 2 { // who takes any state sees what the feeds see
		if _, body := ask(t, c, "GET", "/api/v1/pods?resourceVersion=0", ""); body != other.name {
			t.Errorf("a read of any version went to %s", body)
		}
	}
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

// TestServersFrozenFeed: a feed of a server of which nothing is heard ends soon.
func TestServersFrozenFeed(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	held := a
	if c.servers.preferred.Load() == c.serverAt(t, b) {
		held = b
	}
	accepted, ended := startWatch(testContext(t), c.Source())
	within(t, accepted, "the watch")
	held.ice.freeze()
	if err := within(t, ended, "the end of the watch"); err == nil {
		t.Error("the watch ended as if nothing had happened")
	}
	// Source methods that ask for the server of the feeds go elsewhere, too.
	if _, err := c.Source().Server(testContext(t)); err != nil {
		t.Error(err)
	}
	err := c.Source().Watch(testContext(t), pods(), api.JSON, cache.WatchOptions{ResourceVersion: 1}, func(cache.Event) error { return io.ErrClosedPipe })
	if err == nil {
		t.Error("no watch")
	}
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

// TestMayBeStale: only what any version will do for.
func TestMayBeStale(t *testing.T) {
	for query, want := range map[string]bool{
		"": false, "resourceVersion=0": true, "watch=1&resourceVersion=0": true, "resourceVersion=01": false,
		"xresourceVersion=0": false, "resourceVersion=5": false,
	} {
		if got := mayBeStale(query); got != want {
			t.Errorf("%q: %v", query, got)
		}
	}
	for path, want := range map[string]bool{
		"/api/v1/namespaces/x/pods/y/proxy": true, "/api/v1/namespaces/x/pods/y/proxy/z": true, "/api/v1/namespaces/x/pods/proxy-1": false,
		"/api/v1/namespaces/x/pods/y/%70roxy/": true,
	} {
		if got := proxied(&url.URL{Opaque: path}); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
}

// TestServersNewest: a server that is behind is told from a cluster that went back.
func TestServersNewest(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	at := func(version string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"`+version+`"},"items":[]}`)
		}
	}
	held, other := a, b
	if c.servers.preferred.Load() == c.serverAt(t, b) {
		held, other = b, a
	}
	held.does(at("7"))
	other.does(at("9"))
	source := c.Source()
	current, err := source.CurrentVersion(testContext(t), pods())
	if err != nil || current != 7 {
		t.Errorf("the version of the feeds' server: %d %v", current, err)
	}
	newest, err := source.NewestVersion(testContext(t), pods())
	if err != nil || newest != 9 {
		t.Errorf("the newest version: %d %v", newest, err)
	}
	other.does(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	if newest, err := source.NewestVersion(testContext(t), pods()); err == nil || newest != 7 {
		t.Errorf("the newest version of those that tell theirs: %d %v", newest, err)
	}
	if _, err := a.client(t).Source().NewestVersion(testContext(t), pods()); !errors.Is(err, cache.ErrUnsupported) {
		t.Errorf("of one server: %v", err)
	}
}
