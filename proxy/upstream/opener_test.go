package upstream

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/bubble"
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

// TestBytesKeepConnections: a connection that is pinged lives while it brings bytes, and ends
// when it has brought none for as long as a ping and its answer may take.
func TestBytesKeepConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer func() { _, _ = near.Close(), far.Close() }()
		c := &openConn{Conn: near, among: newOpenConns(), last: time.Now(), silence: 15 * time.Second}
		_ = c.SetReadDeadline(c.last.Add(c.silence))
		go func() {
			for range 10 {
				time.Sleep(14 * time.Second)
				_, _ = far.Write([]byte{0})
			}
		}()
		began := time.Now()
		var err error
		for err == nil {
			_, err = c.Read(make([]byte, 10))
		}
		if took := time.Since(began); !errors.Is(err, errUnanswered) || took != 155*time.Second {
			t.Errorf("ended after %s: %v", took, err)
		}
	})
}
