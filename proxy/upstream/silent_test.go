package upstream

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// freezer is an upstream that can be frozen: nothing is answered then.
type freezer struct {
	mu   sync.Mutex
	thaw chan struct{} // nil while it is not frozen
}

func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.thaw = make(chan struct{})
}

func (f *freezer) melt() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thaw != nil {
		close(f.thaw)
		f.thaw = nil
	}
}

// wait returns when the upstream is not frozen, or the request is over.
func (f *freezer) wait(ctx context.Context) {
	f.mu.Lock()
	thaw := f.thaw
	f.mu.Unlock()
	if thaw != nil {
		select {
		case <-thaw:
		case <-ctx.Done():
		}
	}
}

const silence = 200 * time.Millisecond

func soonSilent(o *Options) { o.Limits.SilenceTimeout = silence }

// TestFrozenUpstream: requests that wait for it end, later ones are not sent, and
// when it is back it is found again.
func TestFrozenUpstream(t *testing.T) {
	bothProtocolsInBubbles(t, func(t *testing.T, options ...serverOption) {
		var ice freezer
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			ice.wait(r.Context())
			_, _ = io.WriteString(w, "ok")
		}, options...)
		defer ice.melt()
		c := s.client(t, soonSilent)
		forward := func(method string) (status int, body string, again bool) {
			resp := c.Forward(testContext(t), request(method, "/api/v1/pods"), Credentials{As: AsGateway})
			return resp.Status, finish(t, resp), resp.Header.Get("Retry-After") == "1"
		}
		responses := func() {
			t.Helper()
			for began := time.Now(); ; time.Sleep(time.Millisecond) {
				status, body, _ := forward("GET")
				if status == 200 {
					return
				}
				if time.Since(began) > 10*time.Second {
					t.Fatalf("the upstream is not found: %d %s", status, body)
				}
			}
		}
		responses()
		ice.freeze()
		if status, body, again := forward("GET"); status != 503 || !again || !strings.Contains(body, "has stopped responding") {
			t.Errorf("a read: %d %s, Retry-After: %v", status, body, again)
		}
		before := s.count()
		for range 20 {
			if status, body, again := forward("POST"); status != 503 || !again {
				t.Errorf("a write after that: %d %s, Retry-After: %v", status, body, again)
			}
		}
		clients, err := kubernetes.NewForConfigAndClient(c.ClientGo())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := clients.CoreV1().Pods("").List(testContext(t), metav1.ListOptions{}); err == nil {
			t.Error("a review was answered")
		}
		s.seen.Lock()
		for _, r := range s.seen.requests[before:] {
			if r.URL.Path != "/version" {
				t.Errorf("%s %s was sent to an upstream known to be gone", r.Method, r.URL.Path)
			}
		}
		s.seen.Unlock()
		ice.melt()
		responses()
	})
}

// TestFrozenWrite: of a write that was under way nobody knows whether it was applied.
func TestFrozenWrite(t *testing.T) { inBubble(t, testFrozenWrite) }

func testFrozenWrite(t *testing.T) {
	var ice freezer
	s := newServer(t, func(_ http.ResponseWriter, r *http.Request) { ice.wait(r.Context()) })
	defer ice.melt()
	c := s.client(t, soonSilent)
	ice.freeze()
	resp := c.Forward(testContext(t), withBody(request("POST", "/api/v1/pods"), "{}"), Credentials{As: AsGateway})
	if body := finish(t, resp); resp.Status != 504 || !strings.Contains(body, "not known whether") || resp.Header.Has("Retry-After") {
		t.Errorf("%d %s", resp.Status, body)
	}
}

// TestFrozenBody: an answer that has begun ends, too, broken.
func TestFrozenBody(t *testing.T) { inBubble(t, testFrozenBody) }

func testFrozenBody(t *testing.T) {
	var ice freezer
	ice.freeze()
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" {
			_, _ = w.Write(make([]byte, smallBody+1))
			_ = http.NewResponseController(w).Flush()
		}
		ice.wait(r.Context())
	})
	defer ice.melt()
	c := s.client(t, soonSilent)
	resp := c.Forward(testContext(t), request("GET", "/api/v1/pods"), Credentials{As: AsGateway})
	if resp.Status != 200 || resp.BodyTo == nil {
		t.Fatalf("%d", resp.Status)
	}
	_, err := resp.BodyTo.WriteTo(io.Discard)
	resp.Done(0, err)
	if err == nil || !strings.Contains(err.Error(), health.ErrSilent.Error()) {
		t.Errorf("err = %v", err)
	}
}

// TestSlowIsNotGone: a request takes as long as it likes while the upstream answers
// others.
func TestSlowIsNotGone(t *testing.T) {
	bothProtocolsInBubbles(t, func(t *testing.T, options ...serverOption) {
		var ice freezer
		ice.freeze()
		probed := make(chan struct{}, 100)
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/version" {
				select {
				case probed <- struct{}{}:
				default:
				}
				w.WriteHeader(http.StatusForbidden)
				return
			}
			ice.wait(r.Context())
			_, _ = io.WriteString(w, "ok")
		}, options...)
		defer ice.melt()
		c := s.client(t, func(o *Options) { o.Limits.SilenceTimeout = 2 * time.Second })
		go func() {
			for range 3 { // after 1 s, 2 s, 3 s of silence
				<-probed
			}
			ice.melt()
		}()
		resp := c.Forward(testContext(t), request("GET", "/api/v1/pods"), Credentials{As: AsGateway})
		if body := finish(t, resp); resp.Status != 200 {
			t.Errorf("%d %s", resp.Status, body)
		}
	})
}

// TestClockSet: the time of day may be set without anything being taken for silent, or heard
// later than it was: all times that are compared have a monotonic reading.
func TestClockSet(t *testing.T) {
	s := newServer(t, quietWatch)
	c := s.client(t)
	source := c.Source()
	if !source.LastContact().IsZero() {
		t.Error("something was heard before there was a connection")
	}
	accepted, _ := startWatch(testContext(t), source)
	within(t, accepted, "the watch")
	c.health.NoneReachable(true)
	_, away := c.Reachable()
	for name, at := range map[string]time.Time{"the last contact": source.LastContact(), "the outage": away} {
		if at == at.Round(0) || at.IsZero() {
			t.Errorf("%s is at %v", name, at)
		}
	}
}
