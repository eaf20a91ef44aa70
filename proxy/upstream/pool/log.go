package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/kubeweir/kubeweir/internal/credentials"
	"github.com/kubeweir/kubeweir/proxy/upstream/health"
)

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
