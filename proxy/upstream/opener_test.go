package upstream

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/source"
)

// TestOneConnectionForMany: what is asked at once of a server to which there is no connection
// yet shares one.
func TestOneConnectionForMany(t *testing.T) {
	var opened atomic.Int32
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`))
	}, func(s *httptest.Server) {
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened.Add(1)
			}
		}
	})
	c := s.client(t)
	pods := &source.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := c.Source().CurrentVersion(testContext(t), pods); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections for requests made at once", n)
	}
}

// TestOpenerFails: who waited for a connection that cannot be opened tries it itself.
func TestOpenerFails(t *testing.T) {
	s := newServer(t, nil)
	c := s.client(t)
	s.Close()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := c.Source().Server(testContext(t)); err == nil {
				t.Error("a server that is closed answers")
			}
		})
	}
	all.Wait()
}
