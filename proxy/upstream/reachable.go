package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// Reachable reports whether the upstream can be reached, as far as is known without
// asking it: since when it cannot, if it gives no sign of life, or if no connection to it
// could be made since its last answer. While it cannot, it is looked for.
func (c *Client) Reachable() (ok bool, since time.Time) { return c.life.reachable() }

func (l *life) reachable() (ok bool, since time.Time) {
	if l.isGone() {
		return false, l.contacts.at(l.gone.Load())
	}
	if away := l.away.Load(); away > l.contacts.last.Load() {
		return false, l.contacts.at(away)
	}
	return true, time.Time{}
}

// unconnected reports whether a request failed with err because no connection could be
// made, so that it was surely not sent.
func unconnected(err error) bool {
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	if errors.Is(err, context.Canceled) {
		return false // whoever asked has left
	}
	return errors.As(err, &dial) && (dial.Op == "dial" || dial.Op == "proxyconnect") || errors.As(err, &certificate)
}
