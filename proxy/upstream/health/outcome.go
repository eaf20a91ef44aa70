package health

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

var (
	// ErrSilent says that nothing is heard of the upstream any more.
	ErrSilent = errors.New("the upstream gives no sign of life")
	// ErrTimeout says that the head of a response did not come in time.
	ErrTimeout = errors.New("the upstream did not answer in time")
	// ErrClosed says that the client of the upstream is closed.
	ErrClosed = errors.New("the upstream client is closed")
)

// Reachable reports whether the upstream can be reached, as far as is known without
// asking it: since when it cannot, if it gives no sign of life, or if no connection to it
// could be made since its last answer. While it cannot, it is looked for.
func (l *Detector) Reachable() (ok bool, since time.Time) {
	if l.isGone() {
		return false, l.contacts.At(l.gone.Load())
	}
	if away := l.away.Load(); away > l.contacts.last.Load() {
		return false, l.contacts.At(away)
	}
	return true, time.Time{}
}

// Unconnected reports whether a request failed with err because no connection could be
// made, so that it was surely not sent.
func Unconnected(err error) bool {
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	if errors.Is(err, context.Canceled) {
		return false // whoever asked has left
	}
	return errors.As(err, &dial) && (dial.Op == "dial" || dial.Op == "proxyconnect") || errors.As(err, &certificate)
}

// Cause is why something failed: the reason why ctx was cancelled if it was,
// else err.
func Cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
