package clients

import (
	"encoding/base64"
	"testing"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestChromiumWebSockets checks that a browser opens WebSockets over its existing HTTP/2 connection
// (RFC 8441), for watches from the cache and for forwarded requests.
func TestChromiumWebSockets(t *testing.T) {
	ctx, g := deadline(t), startGateway(t)
	d := &driver{peer: newChromiumPeer(t, g.URL()), token: kube.Token(realkube.Admin)}
	// A WebSocket opens no new HTTP/2 connection, so there must be one.
	d.get(maps+"/map-0001").whole(ctx, t, 200)
	token := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(d.token))
	const one = "fieldSelector=metadata.name=map-0000"
	var sockets []*exchange
	for _, path := range []string{maps + "?watch=true&" + one, "/api/v1/watch/namespaces/default/configmaps?" + one} {
		for range 2 {
			sockets = append(sockets, d.send(request{Path: path, Protocols: []string{token, "x"}}))
		}
	}
	for _, x := range sockets {
		x.awaitText(ctx, t, `"map-0000"`)
	}
	m, err := g.Metrics(ctx)
	must(t, err)
	if n := m.Sum("kubeweir_connections", map[string]string{"listener": "secure", "protocol": "http/1.1"}); n != 0 {
		t.Errorf("%v HTTP/1.1 connections", n)
	}
	for _, x := range sockets {
		x.cancel()
		x.until(ctx, t, "its end", func() bool { return x.ended })
		if x.err != nil {
			t.Errorf("%s: %v", x.name, x.err)
		}
	}
}
