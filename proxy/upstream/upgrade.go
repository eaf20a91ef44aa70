package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/edge/websocket"
	"github.com/kubeweir/kubeweir/proxy/upstream/header"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// Upgrade passes a request for a protocol upgrade on. If the upstream agrees, the response is an
// Upgrade with the header of its 101, whatever protocol that names. It passes bytes both ways until
// both sides have closed; after one has, the other gets Limits.UpgradeLinger. If the upstream does
// not agree, its response is an ordinary one.
//
// The request is sent over HTTP/1.1, on a new connection: on a reused one, net/http would send a
// GET again, which exec over a WebSocket is. For a client of HTTP/2, which has no key of its own
// (RFC 8441), the WebSocket handshake is made here. A bearer token in the WebSocket subprotocol is
// passed on with AsClient only.
func (c *Client) Upgrade(ctx context.Context, r *api.Request, cred Credentials) *api.Response {
	x := c.newForwarding(ctx, r, &cred)
	x.longRunning = true
	req, err := x.request()
	if err != nil {
		return x.rejectWith(err)
	}
	req.Header["Connection"] = []string{"Upgrade"}
	req.Header["Upgrade"] = []string{r.Upgrade}
	key := ""
	if r.Proto == "HTTP/2.0" {
		key = websocket.NewKey()
		req.Header["Sec-Websocket-Key"] = []string{key}
	}
	rt := c.own.once
	if cred.As == AsClient {
		rt = c.anonymous.once
	}
	// The upstream may take some time to dial a node, but not forever.
	timeout := time.AfterFunc(c.limits.RequestTimeout, func() { x.cancel(health.ErrTimeout) })
	resp, err := x.roundTrip(rt, req)
	timeout.Stop()
	if err != nil {
		return x.failed(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return x.respond(resp)
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return x.failed(errors.New("the upstream switches protocols without saying to which"))
	}
	if key != "" && !websocket.Agrees(resp.Header, key) {
		return x.failed(errors.New("the upstream switches to what is not the WebSocket that was asked for"))
	}
	// From here on the two connections determine the end.
	x.detach()
	return &api.Response{
		Status:  http.StatusSwitchingProtocols,
		Header:  header.Switching(resp.Header),
		Upgrade: func(client net.Conn) { x.splice(client, conn) },
		Done:    func(int64, error) { x.end() },
	}
}

// splice connects the two until both are closed.
func (x *forwarding) splice(client net.Conn, upstream io.ReadWriteCloser) {
	defer x.end()
	s := &spliced{client: client, upstream: upstream}
	defer s.close()
	_ = client.SetDeadline(time.Time{})
	stop := context.AfterFunc(x.ctx, s.close)
	defer stop()
	x.c.metrics.upgrades.Inc()
	defer x.c.metrics.upgrades.Dec()

	down := make(chan struct{})
	if !x.c.spawn(func() {
		defer close(down)
		s.copy(client, upstream)
	}) {
		return
	}
	up := make(chan struct{})
	x.c.panics.Go(nil, "upgrade", func() {
		defer close(up)
		s.copy(upstream, client)
	})
	select {
	case <-up:
	case <-down:
	}
	linger := time.AfterFunc(x.c.limits.UpgradeLinger, s.close)
	defer linger.Stop()
	<-up
	<-down
}

// spliced is a pair of connections.
type spliced struct {
	client   net.Conn
	upstream io.ReadWriteCloser
}

func (s *spliced) close() {
	_ = s.client.Close()
	_ = s.upstream.Close()
}

// copy passes bytes on until from ends, and then closes that half of to. If it cannot, it closes
// both connections.
func (s *spliced) copy(to io.Writer, from io.Reader) {
	_, err := io.CopyBuffer(onlyWriter{to}, onlyReader{from}, make([]byte, 16<<10))
	half, ok := to.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		s.close()
	}
}

// onlyWriter and onlyReader hide the other methods of connections, which io.Copy would use: those
// of net/http allocate more, and copy as much.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)
