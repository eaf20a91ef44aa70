package upstream

import (
	"io"
	"net/http"

	"github.com/kubeweir/kubeweir/internal/api"
)

// smallBody is up to what size a response is read before it is passed on: it
// takes one write then, and its connection is free at once.
const smallBody = 32 << 10

// copyBuffer is the size of the portions in which larger bodies are passed on.
const copyBuffer = 32 << 10

// respond passes a response on.
func (x *exchange) respond(resp *http.Response) *api.Response {
	out := &api.Response{Status: resp.StatusCode, Header: responseHeader(resp.Header, x.r.Method)}
	body := newGuardedBody(x.ctx, x.cancel, resp.Body, x.c.limits.StallTimeout)
	if x.longRunning {
		body.limit = 0
	}
	switch length := resp.ContentLength; {
	case length == 0 || x.r.Method == http.MethodHead || resp.StatusCode == 204 || resp.StatusCode == 304:
		x.end()
	case length > 0 && length <= smallBody:
		out.Body = make([]byte, length)
		_, err := io.ReadFull(body, out.Body)
		x.end()
		if err != nil {
			if x.left() {
				return &api.Response{Status: statusClientLeft}
			}
			x.c.logFailure(x.broke(err), x.r)
			return x.broken()
		}
		out.Length = length
	case length < 0 && x.streams():
		out.Stream = newStream(x, body)
		out.Done = func(int64, error) { x.end() }
	default:
		out.BodyTo, out.Length = &download{x, body}, length
		out.Done = func(int64, error) { x.end() }
	}
	return out
}

// streams reports whether the response is to be passed on byte by byte as it comes.
func (x *exchange) streams() bool {
	if x.info.Subresource == "log" {
		return follows(x.r.RawQuery)
	}
	return x.longRunning
}

// download passes a body on.
type download struct {
	x    *exchange
	body io.Reader
}

// WriteTo implements io.WriterTo. An error means that the response is not
// complete, whichever side broke it off.
func (d *download) WriteTo(w io.Writer) (written int64, err error) {
	buf := d.x.c.buffers.Get().(*[]byte)
	defer d.x.c.buffers.Put(buf)
	for {
		n, err := d.body.Read(*buf)
		if n > 0 {
			m, err := w.Write((*buf)[:n])
			written += int64(m)
			if err != nil {
				return written, err
			}
		}
		switch {
		case err == io.EOF: //nolint:errorlint // Readers return it bare.
			return written, nil
		case err != nil:
			return written, d.x.broke(err)
		}
	}
}
