package proxy

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// socketHeader is a handshake, as a browser's. Connection has been read by the transport.
var socketHeader = []string{
	"Upgrade: websocket", "Origin: https://dashboard", "Sec-Websocket-Version: 13", "Sec-Websocket-Key: a2V5",
	"Sec-Websocket-Extensions: permessage-deflate", "Accept-Encoding: gzip, deflate, br",
}

const socketWatch = "GET /api/v1/pods?watch=1&resourceVersion=0"

// farEnd is a client's end of a stream.
type farEnd struct {
	mu     sync.Mutex
	got    strings.Builder
	closed bool
}

func (f *farEnd) WriteFrames(frames [][]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range frames {
		f.got.Write(b)
	}
	return nil
}

func (f *farEnd) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}
func (f *farEnd) Abort() { f.Close() }

func (f *farEnd) take() (got string, closed bool) {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	got = f.got.String()
	f.got.Reset()
	return got, f.closed
}

// socket opens a watch over a WebSocket.
func (b *gatewayBench) socket(line string, header ...string) (*farEnd, *api.Response) {
	b.t.Helper()
	resp := b.gateway.Serve(b.t.Context(), request(line, append(header, socketHeader...)...))
	f := &farEnd{}
	if resp.Stream != nil {
		resp.Stream.Start(f)
	}
	return f, resp
}

func stop(resp *api.Response) {
	resp.Stream.Stop()
	resp.Done(0, nil)
}

const closedNormally = "\x88\x02\x03\xe8"

// TestWebSocketWatch: a watch over a WebSocket is one like others, from the cache, and
// ends as they do.
func TestWebSocketWatch(t *testing.T) {
	for name, end := range map[string]func(b *gatewayBench, resp *api.Response){
		"by the client": func(_ *gatewayBench, resp *api.Response) {
			_ = resp.Stream.(api.Duplex).Receive([]byte("\x88\x80\x00\x00\x00\x00"))
		},
		"by the drain": func(b *gatewayBench, _ *api.Response) { b.gateway.Drain(b.t.Context(), 0) },
		"by the loss of the permission": func(b *gatewayBench, _ *api.Response) {
			b.upstream.mu.Lock()
			b.upstream.allowed = func(*authorizationv1.SubjectAccessReviewSpec) bool { return false }
			b.upstream.mu.Unlock()
			time.Sleep(3 * time.Minute)
		},
		"by its time": func(*gatewayBench, *api.Response) { time.Sleep(10 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newGatewayBench(t, nil)
				go b.gateway.Revocation.Run(t.Context())
				b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
				f, resp := b.socket(socketWatch + "&timeoutSeconds=600")
				defer stop(resp)
				if n := b.upstream.count(); n != 0 || resp.Status != 101 {
					t.Fatalf("status %d, %d requests went upstream", resp.Status, n)
				}
				if got, closed := f.take(); !strings.HasPrefix(got, "\x81") || !strings.Contains(got, `{"type":"ADDED"`) || closed {
					t.Fatalf("got %q, closed %v", got, closed)
				}
				if b.gateway.slots.longRunning.InUse() != 1 {
					t.Error("the watch holds no place")
				}
				end(b, resp)
				if got, closed := f.take(); got != closedNormally || !closed {
					t.Errorf("at the end: %q, closed %v", got, closed)
				}
			})
		})
	}
}

// TestWebSocketResponses: the answer has the lines of the agreement and no others; a refusal
// is that of a watch.
func TestWebSocketResponses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		b.upstream.allowed = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
			return s.User == "jane" && s.ResourceAttributes.Verb == "watch"
		}
		// As a browser sends a token: base64url of "jane".
		_, resp := b.socket(socketWatch, "Authorization: ", "Sec-Websocket-Protocol: base64url.bearer.authorization.k8s.io.amFuZQ, base64.binary.k8s.io")
		var lines []string
		for _, h := range resp.Header {
			lines = append(lines, h.Name)
		}
		want := "Upgrade Connection Sec-WebSocket-Accept Sec-WebSocket-Protocol"
		if got := strings.Join(lines, " "); resp.Status != 101 || got != want || resp.Header.Get("Sec-WebSocket-Protocol") != "base64.binary.k8s.io" {
			t.Errorf("%d %v", resp.Status, resp.Header)
		}
		stop(resp)
		if n := testutil.ToFloat64(b.gateway.account.metrics.requests.WithLabelValues("watch", "", "pods", "cached", "101")); n != 1 {
			t.Errorf("counted %v times", n)
		}
		for line, status := range map[string]int{"Authorization: Bearer admin": 403, "Authorization: Bearer bad": 401} {
			_, resp := b.socket(socketWatch, line)
			if resp.Status != status || !strings.Contains(string(resp.Body), `"kind":"Status"`) || !resp.Header.Has("Audit-Id") {
				t.Errorf("%s: %d %v %s", line, resp.Status, resp.Header, resp.Body)
			}
			resp.Done(0, nil)
		}
		if n := b.upstream.count(); n != 0 {
			t.Errorf("%d requests went upstream", n)
		}
	})
}

// TestWebSocketsOfOtherReads: what is no watch that the cache can serve is forwarded.
func TestWebSocketsOfOtherReads(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		for i, line := range []string{
			"GET /api/v1/pods?resourceVersion=0", "GET /api/v1/namespaces/default/pods/a?resourceVersion=0", "POST /api/v1/pods?watch=1&resourceVersion=0",
			"GET /api/v1/watch/pods/a?resourceVersion=0", "GET /api/v1/namespaces/default/pods/a/exec?watch=1", "GET /api/v1/pods?watch=1&resourceVersion=x",
		} {
			_, resp := b.socket(line)
			resp.Done(0, nil)
			if b.upstream.count() != i+1 {
				t.Errorf("%s: not forwarded", line)
			}
		}
		// With another credential the token is one of two subprotocols.
		before := b.upstream.count()
		_, resp := b.socket(socketWatch, "Sec-Websocket-Protocol: base64url.bearer.authorization.k8s.io.amFuZQ, base64.binary.k8s.io")
		resp.Done(0, nil)
		if b.upstream.count() != before+1 {
			t.Error("a handshake with two subprotocols: not forwarded")
		}
	})
}
