package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/proxy/console/web"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, change func(*Options)) *Console {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	o := Options{
		Mode: Gateway, Version: "v1.2.3", Process: prometheus.NewRegistry(), Log: log, Panics: contain.New(nil, log), Blocked: policy.NewBlocked(nil),
		Clusters: func() []*Cluster {
			return []*Cluster{{Handler: &handler{}, Metrics: prometheus.NewRegistry(), LastChange: func() *time.Time { return nil }}}
		},
	}
	if change != nil {
		change(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// request sends a request from this machine.
func request(c http.Handler, method, target string, change func(*http.Request)) *httptest.ResponseRecorder {
	var body *strings.Reader
	r := httptest.NewRequest(method, "http://127.0.0.1:9444"+target, nil)
	if method == http.MethodPost {
		body = strings.NewReader("{}")
		r = httptest.NewRequest(method, "http://127.0.0.1:9444"+target, body)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(actionHeader, "1")
	}
	r.RemoteAddr = "127.0.0.1:1"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

func TestPagesNeedNoAuthorization(t *testing.T) {
	c := open(t, nil)
	for path, want := range map[string]string{"/": "text/html; charset=utf-8", "/console/app.js": "text/javascript; charset=utf-8"} {
		w := request(c, "GET", path, func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" })
		if w.Code != 200 || w.Header().Get("Content-Type") != want || w.Header().Get("Content-Security-Policy") != web.Policy {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		again := request(c, "GET", path, func(r *http.Request) { r.Header.Set("If-None-Match", w.Header().Get("ETag")) })
		if again.Code != 304 || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", path, again.Code)
		}
	}
	for path, want := range map[string]int{"/console/none.js": 404, "/console/../console.go": 307, "/console/api/none": 404} {
		if w := request(c, "GET", path, nil); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	if w := request(c, "POST", "/", nil); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestResponsesHaveSecurityHeaders(t *testing.T) {
	c := open(t, nil)
	for _, path := range []string{"/", "/console/app.js", "/console/none", "/console/api/session", "/console/api/none"} {
		h := request(c, "GET", path, nil).Header()
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Frame-Options") != "DENY" ||
			!strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("Set-Cookie") != "" {
			t.Errorf("%s: %v", path, h)
		}
	}
	if cached := request(c, "GET", "/console/api/session", nil).Header().Get("Cache-Control"); cached != "no-store" {
		t.Errorf("a document may be cached: %q", cached)
	}
}

func TestWithoutTokenOnlyThisMachineIsAllowed(t *testing.T) {
	c := open(t, nil)
	for name, one := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"this machine":  {nil, 200},
		"localhost":     {func(r *http.Request) { r.Host = "localhost:8080" }, 200},
		"its own page":  {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, 200},
		"another":       {func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }, 403},
		"no address":    {func(r *http.Request) { r.RemoteAddr = "" }, 403},
		"rebinding":     {func(r *http.Request) { r.Host = "evil.example" }, 403},
		"a page":        {func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
		"a page's link": {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"a proxy":       {func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") }, 403},
		"a mesh":        {func(r *http.Request) { r.RemoteAddr = "127.0.0.6:1"; r.Header.Set("X-Forwarded-Proto", "http") }, 403},
		"Envoy":         {func(r *http.Request) { r.Header.Set("X-Envoy-Attempt-Count", "1") }, 403},
		"via":           {func(r *http.Request) { r.Header.Set("Via", "1.1 proxy") }, 403},
		"no origin":     {func(r *http.Request) { r.Header.Set("Origin", "null") }, 403},
		"another port":  {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
	} {
		w := request(c, "GET", "/console/api/session", one.change)
		var failed Failure
		if err := json.Unmarshal(w.Body.Bytes(), &failed); w.Code != one.want || err != nil || (w.Code != 200) != (failed.Error != "") {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, one.want)
		}
	}
}

func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, func(o *Options) { o.TokenFile = file })
	with := func(value string) func(*http.Request) {
		return func(r *http.Request) {
			r.RemoteAddr, r.Host = "192.0.2.1:1", "gateway.example"
			r.Header.Set("Authorization", value)
		}
	}
	for value, want := range map[string]int{
		"Bearer 0123456789abcdef": 200, "bearer 0123456789abcdef": 200,
		"": 401, "Bearer": 401, "Bearer ": 401, "Basic 0123456789abcdef": 401, "Bearer 0123456789abcdeg": 401, "Bearer 0123456789abcde": 401,
	} {
		w := request(c, "GET", "/console/api/session", with(value))
		if w.Code != want || (want == 401) != (w.Header().Get("WWW-Authenticate") == "Bearer") {
			t.Errorf("%q: %d %v", value, w.Code, w.Header())
		}
	}
	// The token is also required on this machine, and does not authorize a foreign page.
	if w := request(c, "GET", "/console/api/session", nil); w.Code != 401 {
		t.Errorf("without: %d", w.Code)
	}
	if w := request(c, "GET", "/console/api/session", func(r *http.Request) {
		with("Bearer 0123456789abcdef")(r)
		r.Header.Set("Origin", "https://evil.example")
	}); w.Code != 403 {
		t.Errorf("foreign page: %d", w.Code)
	}
	last := 0
	for range maxWrongTokens + 1 {
		last = request(c, "GET", "/console/api/session", with("Bearer wrong-wrong-wrong")).Code
	}
	if good := request(c, "GET", "/console/api/session", with("Bearer 0123456789abcdef")).Code; last != 429 || good != 200 {
		t.Errorf("after many: %d, and the right one %d", last, good)
	}
}

// TestRemovedTokenLocksConsole: while the file is missing or invalid, all clients are rejected,
// streams end, and the log has one message.
func TestRemovedTokenLocksConsole(t *testing.T) {
	for name, takeAway := range map[string]func(file string) error{
		"gone": os.Remove, "empty": func(file string) error { return os.Truncate(file, 0) },
		"short": func(file string) error { return os.WriteFile(file, []byte("0123456789"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "token")
			give := func() {
				if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			give()
			bubble.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				c := open(t, func(o *Options) { o.TokenFile, o.Log = file, textLog(&log) })
				defer c.Close()
				with := func(r *http.Request) { r.Header.Set("Authorization", "Bearer 0123456789abcdef") }
				streamed := make(chan string, 1)
				go func() { streamed <- request(c, "GET", "/console/api/events?topics=overview", with).Body.String() }()
				time.Sleep(eventPeriod)
				if w := request(c, "GET", "/console/api/session", with); w.Code != 200 {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
				if err := takeAway(file); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					time.Sleep(eventPeriod)
					if w := request(c, "GET", "/console/api/session", with); w.Code != 401 || !strings.Contains(w.Body.String(), "rejects all clients") {
						t.Errorf("%d %s", w.Code, w.Body)
					}
				}
				if events := <-streamed; !strings.Contains(events, "event: end") {
					t.Errorf("the stream: %.300s", events)
				}
				if n := strings.Count(log.String(), "all clients are rejected"); n != 1 || strings.Contains(log.String(), "0123456789") {
					t.Errorf("logged %d times: %s", n, log.String())
				}
				give()
				time.Sleep(eventPeriod)
				if w := request(c, "GET", "/console/api/session", with); w.Code != 200 {
					t.Errorf("after the file is back: %d %s", w.Code, w.Body)
				}
			})
		})
	}
}

func TestReplacedTokenFileOfSameSizeAndTimeIsRead(t *testing.T) {
	dir, at := t.TempDir(), time.Unix(1, 0)
	file := filepath.Join(dir, "token")
	give := func(token string) {
		other := filepath.Join(dir, "other")
		if err := errors.Join(os.WriteFile(other, []byte(token), 0o600), os.Chtimes(other, at, at), os.Rename(other, file)); err != nil {
			t.Fatal(err)
		}
	}
	give("0123456789abcdef")
	bubble.Test(t, func(t *testing.T) {
		c := open(t, func(o *Options) { o.TokenFile = file })
		defer c.Close()
		give("fedcba9876543210")
		time.Sleep(eventPeriod)
		for token, want := range map[string]int{"0123456789abcdef": 401, "fedcba9876543210": 200} {
			w := request(c, "GET", "/console/api/session", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
			if w.Code != want {
				t.Errorf("%s: %d, want %d", token, w.Code, want)
			}
		}
	})
}

func TestInvalidTokenFileIsRejected(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"empty": "", "short": "0123456789abcde", "two": "0123456789abcdef 0123456789abcdef", "large": strings.Repeat("x", maxToken+1)} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var g guard
		if err := g.open(file, nil); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var g guard
	if err := g.open(filepath.Join(dir, "none"), nil); err == nil {
		t.Error("a missing file is accepted")
	}
}

func readerOf(body string) io.ReadCloser { return io.NopCloser(strings.NewReader(body)) }

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func TestPanicWhileSamplingReleasesLock(t *testing.T) {
	panics := false
	c := open(t, func(o *Options) {
		clusters := o.Clusters
		o.Clusters = func() []*Cluster {
			if panics {
				panic("a cluster")
			}
			return clusters()
		}
	})
	func() {
		defer func() { _, panics = recover(), false }()
		panics = true
		c.docs.sample(time.Now())
	}()
	if !c.docs.mu.TryLock() {
		t.Fatal("mu is still locked")
	}
	c.docs.mu.Unlock()
}
