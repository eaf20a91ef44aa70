package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// Why a response, or its connection, ended other than by its handler.
var (
	ErrPanicked   = errors.New("this request caused a panic; look in the logs for details")
	ErrBodyFailed = errors.New("the response could not be written")
	ErrNoUpgrade  = errors.New("this connection cannot be upgraded")
	ErrStreamOver = errors.New("the stream is over")
	// ErrReceived means that a Duplex needs nothing more from its client.
	ErrReceived   = errors.New("nothing more is wanted of the client")
	ErrSlow       = errors.New("the client does not read, and its user holds more than a share of the memory for those who do not")
	ErrBodyClosed = errors.New("the request is over, its body cannot be read any more")
	ErrTooLong    = errors.New("the body is longer than its announced length")
	ErrTooShort   = errors.New("the body is shorter than its announced length")

	errNoResponse = errors.New("the handler gave no response")
)

// Call has the handler respond. It always returns a response.
func (s *Shared) Call(ctx context.Context, r *api.Request) (resp *api.Response) {
	if s.Panics.Run("handler", func() { resp = s.Options.Handler.Serve(ctx, r) }) != nil {
		return s.InternalError(ErrPanicked)
	}
	if resp == nil {
		s.Log.Error("the handler gave no response", "method", r.Method, "path", r.Path)
		return s.InternalError(errNoResponse)
	}
	if resp.Status >= 200 && resp.Status <= 999 || resp.Upgrade != nil {
		return resp
	}
	// A Duplex is for requests with an Upgrade.
	if _, duplex := resp.Stream.(api.Duplex); duplex && r.Upgrade != "" {
		return resp
	}
	s.Log.Error("the handler gave an impossible status", "method", r.Method, "path", r.Path, "status", resp.Status)
	return s.Replace(resp, s.InternalError(errNoResponse), errNoResponse)
}

// Replace abandons a response, and reports to it the status that its client gets instead.
func (s *Shared) Replace(resp, other *api.Response, err error) *api.Response {
	if resp.Stream != nil {
		s.StopStream(resp.Stream)
	}
	resp.Status = other.Status
	s.Done(resp, 0, err)
	return other
}

// WriteBody has a body write itself.
func (s *Shared) WriteBody(body io.WriterTo, w io.Writer) (n int64, err error) {
	if s.Panics.Run("body", func() { n, err = body.WriteTo(w) }) != nil {
		err = ErrPanicked
	}
	return n, err
}

// Done notifies a response that it has ended.
func (s *Shared) Done(resp *api.Response, written int64, err error) {
	if resp.Done != nil {
		_ = s.Panics.Run("done", func() { resp.Done(written, err) })
	}
}

// StartStream starts the stream of a response.
func (s *Shared) StartStream(resp *api.Response, w api.StreamWriter) error {
	return s.begin("stream", resp, func() { resp.Stream.Start(w) })
}

// StopStream stops a stream.
func (s *Shared) StopStream(stream api.Stream) { _ = s.Panics.Run("stream", stream.Stop) }

// RunUpgrade runs the upgrade of a response, and returns when it has ended.
func (s *Shared) RunUpgrade(resp *api.Response, nc net.Conn) error {
	return s.begin("upgrade", resp, func() { resp.Upgrade(nc) })
}

// begin notifies a response that its header was sent, and calls run.
func (s *Shared) begin(place string, resp *api.Response, run func()) error {
	if s.Panics.Run(place, func() {
		if resp.Started != nil {
			resp.Started()
		}
		run()
	}) != nil {
		return ErrPanicked
	}
	return nil
}

// Receive passes on a piece of the bytes from the client. ErrReceived means that it was the last
// one. After a panic the caller must abort the stream.
func (s *Shared) Receive(d api.Duplex, p []byte) (err error) {
	switch {
	case s.Panics.Run("stream", func() { err = d.Receive(p) }) != nil:
		return ErrPanicked
	case err != nil:
		return ErrReceived
	}
	return nil
}

// RejectUpgrade logs that the handler upgrades a request without an Upgrade, and returns the
// response to that.
func (s *Shared) RejectUpgrade(r *api.Request) *api.Response {
	s.Log.Error("the handler upgrades a request that does not ask for it", "method", r.Method, "path", r.Path)
	return s.InternalError(ErrNoUpgrade)
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

// BadRequest is a 400 in that form.
func (s *Shared) BadRequest(why reason.Rejection, err error) *api.Response {
	s.Metrics.Rejections.Count(why)
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

// ReasonFor is the reason behind the status of a rejection that needs no handler.
func ReasonFor(status int) reason.Rejection {
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
