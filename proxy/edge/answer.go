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
	ErrPanicked   = errors.New("this request caused a panic; look in the logs for details")
	ErrBodyFailed = errors.New("the response could not be written")
	errNoResponse = errors.New("the handler gave no response")
	ErrNoUpgrade  = errors.New("this connection cannot be upgraded")
	ErrEarly      = errors.New("the connection cannot be upgraded before the request's body has been sent")
)

// Call has the handler answer. It always returns a response.
func (s *Shared) Call(ctx context.Context, r *api.Request) (resp *api.Response) {
	defer func() {
		if e := recover(); e != nil {
			s.Panics.Recovered("handler", e)
			resp = s.InternalError(ErrPanicked)
		}
	}()
	if resp = s.Options.Handler.Serve(ctx, r); resp == nil {
		s.Log.Error("the handler gave no response", "method", r.Method, "path", r.Path)
		return s.InternalError(errNoResponse)
	}
	if resp.Status < 200 || resp.Status > 999 {
		// A Duplex is for who asks for it.
		_, duplex := resp.Stream.(api.Duplex)
		if resp.Upgrade == nil && !(duplex && r.Upgrade != "") {
			s.Log.Error("the handler gave an impossible status", "method", r.Method, "path", r.Path, "status", resp.Status)
			if resp.Stream != nil {
				s.StopStream(resp.Stream)
			}
			return s.Replace(resp, s.InternalError(errNoResponse), errNoResponse)
		}
	}
	return resp
}

// Replace gives a response up, which is told so and what its client gets instead.
func (s *Shared) Replace(resp, other *api.Response, err error) *api.Response {
	resp.Status = other.Status
	s.Done(resp, 0, err)
	return other
}

// WriteBody has a body write itself.
func (s *Shared) WriteBody(body io.WriterTo, w io.Writer) (n int64, err error) {
	defer func() {
		if e := recover(); e != nil {
			s.Panics.Recovered("body", e)
			err = ErrPanicked
		}
	}()
	return body.WriteTo(w)
}

// Done tells a response that it is over.
func (s *Shared) Done(resp *api.Response, written int64, err error) {
	if resp.Done == nil {
		return
	}
	defer func() {
		if e := recover(); e != nil {
			s.Panics.Recovered("done", e)
		}
	}()
	resp.Done(written, err)
}

// StartStream and stopStream contain the panics of a stream.
func (s *Shared) StartStream(resp *api.Response, w api.StreamWriter) (err error) {
	defer func() {
		if e := recover(); e != nil {
			s.Panics.Recovered("stream", e)
			err = ErrPanicked
		}
	}()
	if resp.Started != nil {
		resp.Started()
	}
	resp.Stream.Start(w)
	return nil
}

// Receive passes a piece of what the client sends on; errReceived says that it was the
// last. After a panic the stream is aborted.
func (s *Shared) Receive(d api.Duplex, p []byte) (err error) {
	defer func() {
		if e := recover(); e != nil {
			s.Panics.Recovered("stream", e)
			err = ErrPanicked
		}
	}()
	if d.Receive(p) != nil {
		return ErrReceived
	}
	return nil
}

func (s *Shared) StopStream(stream api.Stream) {
	defer func() {
		if e := recover(); e != nil {
			s.Panics.Recovered("stream", e)
		}
	}()
	stream.Stop()
}

// InternalError is a 500 with a Status in JSON, in the form of kube-apiserver.
func (s *Shared) InternalError(err error) *api.Response {
	why := reason.NoResponse
	if errors.Is(err, ErrPanicked) {
		why = reason.Panicked
	}
	s.Metrics.Rejections.Count(why)
	return status(500, "InternalError", fmt.Sprintf("Internal error occurred: %v", err))
}

// BadRequest is a 400 in that form, for an upgrade that comes too early.
func (s *Shared) BadRequest(err error) *api.Response {
	s.Metrics.Rejections.Count(reason.EarlyUpgrade)
	return status(400, "BadRequest", err.Error())
}

// NoTunnel is a 400 in that form, for an extended CONNECT whose request is answered as if
// it were none.
func (s *Shared) NoTunnel(err error) *api.Response {
	s.Metrics.Rejections.Count(reason.NotUpgraded)
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

// ReasonFor is the reason behind a status that readRequest refuses with.
func ReasonFor(status int) reason.Refusal {
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
	ErrStreamOver = errors.New("the stream is over")
	ErrReceived   = errors.New("nothing more is wanted of the client")
	ErrSlow       = errors.New("the client does not read, and its user holds more than a share of the memory for those who do not")
)

var ErrBodyClosed = errors.New("the request is over, its body cannot be read any more")

func (s *Shared) RunUpgrade(resp *api.Response, conn net.Conn) (err error) {
	defer func() {
		if e := recover(); e != nil {
			s.Panics.Recovered("upgrade", e)
			err = ErrPanicked
		}
	}()
	if resp.Started != nil {
		resp.Started()
	}
	resp.Upgrade(conn)
	return nil
}
