package health

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
)

var (
	// ErrSilent means that the upstream gave no sign of life for too long.
	ErrSilent = errors.New("the upstream API server has stopped responding")
	// ErrTimeout means that the head of a response did not come in time.
	ErrTimeout = errors.New("the upstream did not answer in time")
	// ErrStalled means that the body of a response stalled.
	ErrStalled = errors.New("the upstream's response stands still")
	// ErrClosed means that the client of the upstream is closed.
	ErrClosed = errors.New("the upstream client is closed")

	errPingTimeout = errors.New("the connection to the upstream is lost: a ping was not answered, and nothing else has come")
)

// Unconnected reports whether a request failed with err because no connection could be made, so
// that it certainly was not sent.
func Unconnected(err error) bool {
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	if errors.Is(err, context.Canceled) {
		return false // the client has left
	}
	return errors.As(err, &dial) && (dial.Op == "dial" || dial.Op == "proxyconnect") || errors.As(err, &certificate)
}

// Cause returns why a request with ctx failed: why ctx was canceled if it was, else err.
func Cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
