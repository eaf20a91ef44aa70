package upstream

import (
	"bytes"
	"io"
	"net/http"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/upstream/header"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// smallBody is up to what size a response is read before it is passed on. It takes one write then,
// and its connection is free at once.
const smallBody = 32 << 10

// respond passes a response on.
func (x *forwarding) respond(resp *http.Response) *api.Response {
	out := &api.Response{Status: resp.StatusCode, Header: header.Response(resp.Header, x.r.Method)}
	body := health.NewIdleReader(x.ctx, x.cancel, resp.Body, x.c.limits.StallTimeout)
	body.Detector, body.Received = x.c.health, x.c.metrics.received[x.purpose]
	if x.mayBeAboutGateway() {
		return x.small(out, body)
	}
	if x.longRunning {
		body.Timeout = 0
	}
	switch length := resp.ContentLength; {
	case length == 0 || x.r.Method == http.MethodHead || resp.StatusCode == 204 || resp.StatusCode == 304:
		x.end()
	case length < 0 && x.streams() && x.upload.sent():
		// A Stream may not read the rest of the request. A BodyTo may, and is passed on as it comes, too.
		out.Stream = newStream(x, body)
		out.Done = func(int64, error) { x.end() }
	case length > smallBody || x.longRunning:
		x.download(out, body, nil, 0)
	default:
		return x.small(out, body)
	}
	return out
}

// small responds with a body that may be small: kube-apiserver rarely tells the length.
func (x *forwarding) small(out *api.Response, body io.Reader) *api.Response {
	buf := buffers.Get().(*[]byte)
	n, err := fill(body, *buf)
	if err == nil {
		x.download(out, body, buf, n)
		return out
	}
	defer buffers.Put(buf)
	x.end()
	switch {
	case x.left():
		return &api.Response{Status: api.StatusClientLeft}
	case err != io.EOF: // Readers return it bare.
		x.c.logFailure(x.broke(err), x.r)
		return x.broken()
	case x.mayBeAboutGateway() && x.isAboutGateway((*buf)[:n]):
		return x.gatewayRejected((*buf)[:n])
	}
	out.Body, out.Length = bytes.Clone((*buf)[:n]), int64(n)
	return out
}

// streams reports whether the response is to be passed on byte by byte as it comes.
func (x *forwarding) streams() bool {
	switch {
	case x.info.Subresource == "log":
		return follows(x.r.RawQuery)
	case x.info.Path == api.SnapshotPath:
		return false // large, and as fast as its client reads
	}
	return x.longRunning
}
