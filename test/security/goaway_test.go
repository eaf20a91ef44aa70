package security

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestUnauthorizedLeavesOpenWatchesAlone checks that a 401 closes an HTTP/2 connection for new
// requests only. Open watches on it, of a client whose token has just expired, continue, as with
// kube-apiserver.
func TestUnauthorizedLeavesOpenWatchesAlone(t *testing.T) {
	ctx := deadline(t, time.Minute)
	const maps = "/api/v1/namespaces/default/configmaps"
	for name, url := range map[string]string{"gateway": startGateway(t).URL(), "kube-apiserver": kube.URL()} {
		c := dialFrames(t, url)
		watch := c.request("GET", maps+"?watch=1&timeoutSeconds=30", kube.AdminToken(), false)
		of := func(id uint32, kind http2.FrameType) func(http2.Frame) bool {
			return func(f http2.Frame) bool { return f.Header().StreamID == id && f.Header().Type == kind }
		}
		if !c.until(of(watch, http2.FrameHeaders)) {
			t.Fatalf("%s: the watch did not start", name)
		}
		c.request("GET", maps, "expired", false)
		if !c.until(of(0, http2.FrameGoAway)) {
			t.Fatalf("%s: no GOAWAY", name)
		}
		made := "after-401-" + name
		if a := do(ctx, t, kube.URL(), kube.AdminToken(), "POST", maps, fmt.Sprintf(`{"metadata":{"name":%q}}`, made)); a.status != 201 {
			t.Fatal(a)
		}
		if !c.until(func(f http2.Frame) bool {
			data, ok := f.(*http2.DataFrame)
			return ok && bytes.Contains(data.Data(), []byte(made))
		}) {
			t.Errorf("%s: the watch ended with the other request", name)
		}
	}
}
