package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/kubeweir/kubeweir/internal/credentials"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

// RateLimitedLog logs few of the errors of one kind: while the upstream is unreachable every
// request is one. It is safe for concurrent use.
type RateLimitedLog struct {
	mu       sync.Mutex
	last     time.Time // when an error was logged
	cause    string    // of that
	unlogged int       // since then
}

const (
	// errorLogPeriod is how often at most an error is logged, and sameErrorLogPeriod how often one of
	// the same cause is.
	errorLogPeriod     = time.Second
	sameErrorLogPeriod = time.Minute
)

// Warn logs an error, with how many were not logged before, or counts it.
func (l *RateLimitedLog) Warn(log *slog.Logger, now time.Time, what string, err error, args ...any) {
	l.mu.Lock()
	why, since := Reason(err), now.Sub(l.last)
	if since < errorLogPeriod || since < sameErrorLogPeriod && why == l.cause {
		l.unlogged++
		l.mu.Unlock()
		return
	}
	unlogged := l.unlogged
	l.last, l.cause, l.unlogged = now, why, 0
	l.mu.Unlock()
	if unlogged > 0 {
		args = append(args, "unlogged", unlogged)
	}
	log.Warn(what, append(args, "error", err)...)
}

// Reason returns why a connection failed, without the addresses and file names of the error itself,
// which clients must not see.
func Reason(err error) string {
	var certificate *tls.CertificateVerificationError
	var name *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, credentials.ErrSilent):
		return "the gateway waits for credentials"
	case errors.As(err, &certificate):
		return "its certificate is not trusted"
	case errors.As(err, &name):
		return "its name cannot be resolved"
	case Unprocessed(err) && !health.Unconnected(err):
		return "it turns requests away"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "connecting takes too long"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection broke"
	}
	return "the gateway's log says why"
}
