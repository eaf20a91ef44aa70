package h1

import (
	"context"
	"net"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
	"github.com/kubeweir/kubeweir/proxy/edge/h2"
)

func init() { edgetest.HTTP1, edgetest.HTTP2 = Serve, h2.Serve }

// connOf makes a connection of a socket, nil for none, that nobody serves.
func connOf(t testing.TB, nc net.Conn) *conn {
	t.Helper()
	s, err := edgetest.NewServer(edge.Options{Handler: edgetest.HandlerFunc(func(context.Context, *api.Request) *api.Response { return nil })})
	if err != nil {
		t.Fatal(err)
	}
	if nc == nil {
		nc, _ = net.Pipe()
	}
	return &conn{Conn: edge.NewConn(&s.Shared, nc, api.ListenerSidecar)}
}
