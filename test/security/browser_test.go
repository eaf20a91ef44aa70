package security

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// TestWebPagesReachNothing checks that a web page in a browser on the same machine has no access to
// the sidecar listener, which uses the gateway's own identity, nor to the admin listener.
func TestWebPagesReachNothing(t *testing.T) {
	g := startGateway(t, "--insecure-listen=127.0.0.1:0")
	ctx := deadline(t, time.Minute)
	page := func(url string, change func(*http.Request)) int {
		t.Helper()
		return statusOf(ctx, t, url, change)
	}
	for _, url := range []string{"http://" + sidecarAddress(t, g) + "/api/v1/namespaces", g.AdminURL() + "/debug/pprof/cmdline", g.AdminURL() + "/metrics"} {
		if code := page(url, nil); code != 200 {
			t.Errorf("%s: %d", url, code)
		}
		for name, change := range map[string]func(*http.Request){
			"an image":                      func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
			"of another port":               func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
			"a foreign origin":              func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
			"a rebound name":                func(r *http.Request) { r.Host = "evil.example" },
			"a WebSocket":                   socketOf("https://evil.example"),
			"a WebSocket of another port":   socketOf("http://127.0.0.1:3000"), // Chromium sends no other header that identifies the page
			"a WebSocket of the usual port": socketOf("http://localhost"),
		} {
			if code := page(url, change); code != 403 {
				t.Errorf("%s: %s: %d, want 403", url, name, code)
			}
		}
	}
	if code := page(g.AdminURL()+"/", nil); code != 200 {
		t.Errorf("index of the admin listener: %d", code)
	}
	off := startGateway(t, "--profiling=false")
	if code := page(off.AdminURL()+"/debug/pprof/cmdline", nil); code != 404 {
		t.Errorf("disabled profiles: %d", code)
	}
}

// socketOf turns a request into one for a WebSocket watch, as Chromium sends it for a page of
// origin.
func socketOf(origin string) func(*http.Request) {
	return func(r *http.Request) {
		r.URL.RawQuery = "watch=1"
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "a2V5", "Origin": origin} {
			r.Header.Set(name, value)
		}
	}
}

func statusOf(ctx context.Context, t *testing.T, url string, change func(*http.Request)) int {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must(t, err)
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	_ = resp.Body.Close()
	return resp.StatusCode
}
