package server

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// start runs a server on a store in memory and returns it with a client config that
// reaches it over the loopback interface as a cluster administrator.
func start(t testing.TB) (*Server, *rest.Config) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	t0 := time.Now()
	s, err := New(Options{
		Engine:   newMem(),
		Identity: Identity{ServiceAccountKey: key},
		Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("built in", time.Since(t0))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	listener := httptest.NewServer(s.Handler())
	t.Cleanup(listener.Close)
	t.Cleanup(func() { _ = s.Close() })
	t1 := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Log("started in", time.Since(t1))
	return s, &rest.Config{Host: listener.URL, QPS: -1}
}

func TestStart(t *testing.T) {
	s, _ := start(t)
	_ = s
}
