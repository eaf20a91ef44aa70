package upstream

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"
)

// at is for a server that takes the place of one that was closed.
func at(t *testing.T, addr string) serverOption {
	return func(s *httptest.Server) {
		l := listen(t, addr)
		_ = s.Listener.Close()
		s.Listener = l
	}
}

// TestReachable: what cannot be connected to is known at once, and found again.
func TestReachable(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) {})
	addr := s.Listener.Addr().String()
	c := s.client(t)
	get := func() int {
		resp := c.Forward(testContext(t), request("GET", "/version"), Credentials{As: AsGateway})
		finish(t, resp)
		return resp.Status
	}
	reachable := func() bool { ok, _ := c.Reachable(); return ok }
	if !reachable() {
		t.Error("an upstream that was not asked yet is away")
	}
	if status := get(); status != 200 || !reachable() {
		t.Fatalf("an upstream that answers %d is away", status)
	}
	before := time.Now()
	s.CloseClientConnections()
	s.Close()
	if status := get(); status != 503 {
		t.Fatalf("an upstream that is away: %d", status)
	}
	ok, since := c.Reachable()
	if ok || since.Before(before) || since.After(time.Now()) {
		t.Errorf("reachable %v since %v, it went at %v", ok, since, before)
	}
	newServer(t, func(http.ResponseWriter, *http.Request) {}, at(t, addr))
	for deadline := time.Now().Add(20 * time.Second); !reachable(); {
		if time.Now().After(deadline) {
			t.Fatal("an upstream that is back is not found")
		}
		runtime.Gosched()
	}
}
