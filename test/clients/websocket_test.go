package clients

import (
	"encoding/base64"
	"testing"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestChromiumWebSockets: a browser opens WebSockets over the HTTP/2 connection that it has (RFC 8441), for watches from
// the cache and for what is forwarded.
func TestChromiumWebSockets(t *testing.T) {
	ctx, g := deadline(t), startGateway(t)
	d := &driver{peer: newChromiumPeer(t, g.URL()), token: kube.Token(realkube.Admin)}
	// A WebSocket begins no HTTP/2 connection: it takes one that is there.
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
		t.Errorf("%v connections of HTTP/1.1", n)
	}
	for _, x := range sockets {
		x.cancel()
		x.until(ctx, t, "its end", func() bool { return x.ended })
		if x.err != nil {
			t.Errorf("%s: %v", x.name, x.err)
		}
	}
}
