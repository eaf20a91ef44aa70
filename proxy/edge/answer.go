package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/reason"
)

var (
	errPanicked   = errors.New("this request caused a panic; look in the logs for details")
	errBodyFailed = errors.New("the response could not be written")
	errNoResponse = errors.New("the handler gave no response")
	errNoUpgrade  = errors.New("this connection cannot be upgraded")
	errEarly      = errors.New("the connection cannot be upgraded before the request's body has been sent")
)

// call has the handler answer. It always returns a response.
func (s *Shared) call(ctx context.Context, r *api.Request) (resp *api.Response) {
	defer func() {
		if e := recover(); e != nil {
			s.panics.Recovered("handler", e)
			resp = s.internalError(errPanicked)
		}
	}()
	if resp = s.o.Handler.Serve(ctx, r); resp == nil {
		s.log.Error("the handler gave no response", "method", r.Method, "path", r.Path)
		return s.internalError(errNoResponse)
	}
	if resp.Status < 200 || resp.Status > 999 {
		// A Duplex is for who asks for it.
		_, duplex := resp.Stream.(api.Duplex)
		if resp.Upgrade == nil && !(duplex && r.Upgrade != "") {
			s.log.Error("the handler gave an impossible status", "method", r.Method, "path", r.Path, "status", resp.Status)
			if resp.Stream != nil {
				s.stopStream(resp.Stream)
			}
			return s.instead(resp, s.internalError(errNoResponse), errNoResponse)
		}
	}
	return resp
}

// instead gives a response up, which is told so and what its client gets instead.
func (s *Shared) instead(resp, other *api.Response, err error) *api.Response {
	resp.Status = other.Status
	s.done(resp, 0, err)
	return other
}

// writeBody has a body write itself.
func (s *Shared) writeBody(body io.WriterTo, w io.Writer) (n int64, err error) {
	defer func() {
		if e := recover(); e != nil {
			s.panics.Recovered("body", e)
			err = errPanicked
		}
	}()
	return body.WriteTo(w)
}

// done tells a response that it is over.
func (s *Shared) done(resp *api.Response, written int64, err error) {
	if resp.Done == nil {
		return
	}
	defer func() {
		if e := recover(); e != nil {
			s.panics.Recovered("done", e)
		}
	}()
	resp.Done(written, err)
}

// startStream and stopStream contain the panics of a stream.
func (s *Shared) startStream(resp *api.Response, w api.StreamWriter) (err error) {
	defer func() {
		if e := recover(); e != nil {
			s.panics.Recovered("stream", e)
			err = errPanicked
		}
	}()
	if resp.Started != nil {
		resp.Started()
	}
	resp.Stream.Start(w)
	return nil
}

// receive passes a piece of what the client sends on; errReceived says that it was the
// last. After a panic the stream is aborted.
func (s *Shared) receive(d api.Duplex, p []byte) (err error) {
	defer func() {
		if e := recover(); e != nil {
			s.panics.Recovered("stream", e)
			err = errPanicked
		}
	}()
	if d.Receive(p) != nil {
		return errReceived
	}
	return nil
}

func (s *Shared) stopStream(stream api.Stream) {
	defer func() {
		if e := recover(); e != nil {
			s.panics.Recovered("stream", e)
		}
	}()
	stream.Stop()
}

// internalError is a 500 with a Status in JSON, in the form of kube-apiserver.
func (s *Shared) internalError(err error) *api.Response {
	why := reason.NoResponse
	if errors.Is(err, errPanicked) {
		why = reason.Panicked
	}
	s.metrics.refusals.Count(why)
	return status(500, "InternalError", fmt.Sprintf("Internal error occurred: %v", err))
}

// badRequest is a 400 in that form, for an upgrade that comes too early.
func (s *Shared) badRequest(err error) *api.Response {
	s.metrics.refusals.Count(reason.EarlyUpgrade)
	return status(400, "BadRequest", err.Error())
}

// noTunnel is a 400 in that form, for an extended CONNECT whose request is answered as if
// it were none.
func (s *Shared) noTunnel(err error) *api.Response {
	s.metrics.refusals.Count(reason.NotUpgraded)
	return status(400, "BadRequest", err.Error())
}

func status(code int, reason, message string) *api.Response {
	quoted, _ := json.Marshal(message)
	return &api.Response{
		Status: code,
		Header: api.Header{
			{Name: "Cache-Control", Value: api.CacheControl},
			{Name: "Content-Type", Value: "application/json"},
		},
		Body: fmt.Appendf(nil, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%s,"reason":"%s","code":%d}`+"\n", quoted, reason, code),
	}
}

// refusalOf is the reason behind a status that readRequest refuses with.
func refusalOf(status int) reason.Refusal {
	switch status {
	case 417:
		return reason.Expectation
	case 431:
		return reason.HeaderTooLarge
	case 501:
		return reason.TunnelProtocol
	case 505:
		return reason.ProtocolVersion
	}
	return reason.Malformed
}

var (
	errStreamOver = errors.New("the stream is over")
	errReceived   = errors.New("nothing more is wanted of the client")
	errSlow       = errors.New("the client does not read, and its user holds more than a share of the memory for those who do not")
)

var errBodyClosed = errors.New("the request is over, its body cannot be read any more")

func (s *Shared) runUpgrade(resp *api.Response, conn net.Conn) (err error) {
	defer func() {
		if e := recover(); e != nil {
			s.panics.Recovered("upgrade", e)
			err = errPanicked
		}
	}()
	if resp.Started != nil {
		resp.Started()
	}
	resp.Upgrade(conn)
	return nil
}
