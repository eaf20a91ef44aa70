package upstream

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// breaks ends the connection of a request that was read.
func breaks(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// TestServersRejected: what could not be sent goes to the next, also a write, with its body.
func TestServersRejected(t *testing.T) { inBubble(t, testServersRejected) }

func testServersRejected(t *testing.T) {
	large := strings.Repeat("x", 2*smallUpload)
	for _, body := range []string{"small", large} {
		a, b := newOneOf(t, "a"), newOneOf(t, "b")
		c := several(t, a, b)
		c.turns(t, a)
		a.gone()
		if status, got := do(t, c, "POST", "/api/v1/pods", body); status != 200 || got != "b took "+body || b.writes.Load() != 1 {
			t.Errorf("a write of %d bytes: %d %.40q, %d writes", len(body), status, got, b.writes.Load())
		}
		c.turns(t, a)
		if status, got := do(t, c, "GET", "/api/v1/pods", ""); status != 200 || got != "b" {
			t.Errorf("a read: %d %q", status, got)
		}
		eventually(t, "the server is down", func() bool { return c.serverAt(t, a).Standing() == health.Down })
		if ok, _ := c.Reachable(); !ok {
			t.Error("with one server left the upstream is away")
		}
	}
}

// TestServersAllGone: it is known at once, and so is that one is back.
func TestServersAllGone(t *testing.T) { inBubble(t, testServersAllGone) }

func testServersAllGone(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	addr := b.Listener.Addr().String()
	c := several(t, a, b)
	a.gone()
	b.gone()
	eventually(t, "the upstream is away", func() bool { ok, _ := c.Reachable(); return !ok })
	// For longer than silence is borne: who refuses connections is tried all the same.
	since := time.Now()
	eventually(t, "much time", func() bool { return time.Since(since) > silentForAll*3/2 })
	if c.health.State() == health.Silent {
		t.Error("requests are not tried any more")
	}
	if status, body := do(t, c, "POST", "/api/v1/pods", "x"); status != 503 || strings.Contains(body, "not known") {
		t.Errorf("a write to nobody: %d %s", status, body)
	}
	newOneOf(t, "b again", at(t, addr))
	eventually(t, "the upstream is back", func() bool { ok, _ := c.Reachable(); return ok })
	if status, body := do(t, c, "GET", "/api/v1/pods", ""); status != 200 || body != "b again" {
		t.Errorf("a read: %d %s", status, body)
	}
}

// TestServersUntrusted: a server whose certificate is not good gets nothing.
func TestServersUntrusted(t *testing.T) { inBubble(t, testServersUntrusted) }

func testServersUntrusted(t *testing.T) {
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
		if status, got := do(t, c, "POST", "/api/v1/pods", "x"); status != 200 || got != "b took x" {
			t.Errorf("a write: %d %q", status, got)
		}
	}
	if a.count() != 0 {
		t.Errorf("a server with a wrong certificate got %d requests", a.count())
	}
}

// TestServersBreak: a read that was not answered goes to the next, a write does not.
func TestServersBreak(t *testing.T) { inBubble(t, testServersBreak) }

func testServersBreak(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	a.does(breaks)
	c.turns(t, a)
	if status, got := do(t, c, "GET", "/api/v1/pods", ""); status != 200 || got != "b" {
		t.Errorf("a read: %d %q", status, got)
	}
	c.turns(t, a)
	status, got := do(t, c, "POST", "/api/v1/pods", "x")
	if status != 503 || !strings.Contains(got, "it is not known whether the request was applied") || b.writes.Load() != 0 {
		t.Errorf("a write: %d %q, %d at the other", status, got, b.writes.Load())
	}
	before := b.requested.Load()
	c.turns(t, a)
	if status, _ := do(t, c, "GET", "/api/v1/namespaces/x/services/y/proxy/", ""); status != 503 || b.requested.Load() != before {
		t.Errorf("a read of nobody knows what was sent again: %d", status)
	}
}

// TestServersBrokenUpload: that a client's body breaks says nothing of servers.
func TestServersBrokenUpload(t *testing.T) { inBubble(t, testServersBrokenUpload) }

func testServersBrokenUpload(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	for range 15 {
		r := request("POST", "/api/v1/pods")
		r.Body, r.ContentLength = io.MultiReader(strings.NewReader("begun"), iotest.ErrReader(io.ErrUnexpectedEOF)), 2*smallUpload
		resp := c.Forward(testContext(t), r, Credentials{As: AsGateway})
		if finish(t, resp); resp.Status != 400 {
			t.Errorf("a body that breaks: %d", resp.Status)
		}
	}
	for _, o := range []*oneOf{a, b} {
		if is := c.serverAt(t, o).Standing(); is != health.Ready || c.ejections(t, o) != 0 {
			t.Errorf("%s is %v", o.name, is)
		}
	}
}

// TestServersUnsendable: that a request's head is larger than servers take, so that it is not
// written, says nothing of them.
func TestServersUnsendable(t *testing.T) { inBubble(t, testServersUnsendable) }

func testServersUnsendable(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	for _, o := range []*oneOf{a, b} { // who say what they take when a connection begins
		c.turns(t, o)
		if status, got := do(t, c, "POST", "/api/v1/pods", "x"); status != 200 || got != o.name+" took x" {
			t.Fatalf("%d %s", status, got)
		}
	}
	r := request("GET", "/api/v1/pods?watch=true", "A", strings.Repeat("b", 2<<20)) // Go's servers take a MiB
	for range 6 {
		resp := c.Forward(testContext(t), r, Credentials{As: AsGateway})
		if finish(t, resp); resp.Status != 503 {
			t.Errorf("a head that is too large: %d", resp.Status)
		}
	}
	for _, o := range []*oneOf{a, b} {
		if c.ejections(t, o) != 0 || o.requested.Load() != 1 {
			t.Errorf("%s is avoided, or was asked %d times", o.name, o.requested.Load()-1)
		}
	}
}

// TestServersReview: a review that was not answered is made again elsewhere, for it changes
// nothing.
func TestServersReview(t *testing.T) { inBubble(t, testServersReview) }

func testServersReview(t *testing.T) {
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
		{"behind", status(504, "Too large resource version: 10, current: 9"), 504, 504},
		{"busy", status(429, "too many requests, please try again later"), 429, 429},
		{"out of order", status(503, "etcdserver: no leader"), 503, 503},
		{"told of another", status(503, `failed calling webhook: the server says: apiserver is shutting down`), 503, 503},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				a, b := newOneOf(t, "a"), newOneOf(t, "b")
				c := several(t, a, b)
				a.does(test.handler)
				c.turns(t, a)
				if status, body := do(t, c, "GET", "/api/v1/pods?resourceVersion=10", ""); status != test.read {
					t.Errorf("a read: %d %s", status, body)
				}
				c.turns(t, a)
				if status, body := do(t, c, "POST", "/api/v1/pods", "x"); status != test.write {
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
				first, _ := do(t, c, "GET", "/api/v1/pods?resourceVersion=10", "")
				if first < 429 {
					t.Errorf("an answer of nobody: %d", first)
				}
			})
		})
	}
}

// TestServersFrozen: reads that wait for a server of which nothing is heard go to the
// next, a write that was sent is not, and ends in time; the server is found again.
func TestServersFrozen(t *testing.T) { inBubble(t, testServersFrozen) }

func testServersFrozen(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	frozen := c.serverAt(t, a)
	type response struct {
		status int
		body   string
	}
	read, write := make(chan response, 1), make(chan response, 1)
	// Both are sent while the server seems well, and the other is not ready.
	only(t, c, a, []*oneOf{b}, func() {
		a.ice.freeze()
		for method, responses := range map[string]chan response{"GET": read, "POST": write} {
			before, body := c.outstanding(t, a), ""
			if method == "POST" {
				body = "x"
			}
			go func() {
				status, body := do(t, c, method, "/api/v1/pods", body)
				responses <- response{status, body}
			}()
			eventually(t, "the request", func() bool { return c.outstanding(t, a) > before })
		}
	})
	if got := within(t, read, "the read"); got.status != 200 || got.body != "b" {
		t.Errorf("a read: %v", got)
	}
	if got := within(t, write, "the write"); got.status != 504 || !strings.Contains(got.body, "it is not known") || b.writes.Load() != 0 {
		t.Errorf("a write: %v, %d at the other", got, b.writes.Load())
	}
	for range 4 {
		if _, got := do(t, c, "POST", "/api/v1/pods", "x"); got != "b took x" {
			t.Errorf("a write: %s", got)
		}
	}
	a.ice.melt()
	eventually(t, "the server is back", func() bool { return frozen.Standing() == health.Ready })
	for range 4 { // a server that came back has not its whole share at once
		if _, got := do(t, c, "GET", "/api/v1/pods", ""); got != "b" {
			t.Errorf("a read: %s", got)
		}
	}
}

// TestServersStore: while the store behind all servers stands still, none can say whether
// it is ready. All are alive, and asked.
func TestServersStore(t *testing.T) { inBubble(t, testServersStore) }

func testServersStore(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	a.stuck.Store(true)
	b.stuck.Store(true)
	for _, o := range []*oneOf{a, b} {
		eventually(t, "the server is not ready", func() bool { return c.serverAt(t, o).Standing() != health.Ready })
	}
	for range 4 {
		if status, body := do(t, c, "GET", "/api/v1/pods", ""); status != 200 {
			t.Errorf("a read: %d %s", status, body)
		}
	}
	for _, o := range []*oneOf{a, b} {
		if is := c.serverAt(t, o).Standing(); is != health.NotReady {
			t.Errorf("%s is %v", o.name, is)
		}
	}
	if ok, _ := c.Reachable(); !ok || c.CheckServers() != nil {
		t.Error("the upstream is away")
	}
	accepted, _ := startWatch(testContext(t), c.Source())
	within(t, accepted, "the watch")
}

// TestServersSlowProxy: what a service says through the proxy comes as it comes, whatever
// its status.
func TestServersSlowProxy(t *testing.T) { inBubble(t, testServersSlowProxy) }

func testServersSlowProxy(t *testing.T) {
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
		responded := make(chan *api.Response, 1)
		go func() {
			responded <- c.Forward(testContext(t), request("GET", "/api/v1/namespaces/x/services/y/"+name+"/"), Credentials{As: AsGateway})
		}()
		resp := within(t, responded, "the answer")
		defer finish(t, resp)
		if resp.Status != http.StatusServiceUnavailable {
			t.Errorf("%d", resp.Status)
		}
	}
	once.Do(func() { close(release) })
}

// TestServersFrozenFeed: a feed of a server of which nothing is heard ends soon.
func TestServersFrozenFeed(t *testing.T) { inBubble(t, testServersFrozenFeed) }

func testServersFrozenFeed(t *testing.T) {
	a, b := newOneOf(t, "a"), newOneOf(t, "b")
	c := several(t, a, b)
	held := a
	if c.preferred(t, b) {
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
	err := c.Source().Watch(testContext(t), pods(), api.JSON, source.WatchOptions{ResourceVersion: 1}, func(source.Event) error { return io.ErrClosedPipe })
	if err == nil {
		t.Error("no watch")
	}
}

// ejections is how often a server was taken out.
func (c *Client) ejections(t *testing.T, o *oneOf) float64 {
	return serverMetric(t, c, "kubeweir_upstream_server_ejections_total", o)
}
