package edge

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/defaults"
)

// lingerTimeout is the default of Options.LingerTimeout.
const lingerTimeout = 500 * time.Millisecond

// Options configure a Server: its handler and its limits. The zero value of a limit selects its
// default (package defaults).
type Options struct {
	// Handler responds to the requests. Required.
	Handler api.Handler

	// Listen is the "host:port" of the TLS listener, "" for none.
	Listen string
	// SidecarListen is the plaintext listener: "127.0.0.1:8080", "[::1]:8080",
	// "localhost:8080" or "unix:/path/of/socket"; "" for none. All of
	// its clients act with the gateway's own identity, so any other address is rejected.
	SidecarListen string
	// GetCertificate returns the serving certificate of a handshake. Required for TLS.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// MinTLSVersion is the oldest version of TLS that is spoken, TLS 1.2 by default.
	MinTLSVersion uint16
	// CipherSuites are the cipher suites of TLS 1.2; nil for Go's choice.
	CipherSuites []uint16

	// MaxConnections is the most open connections over all listeners; one more is
	// closed at once. It is never above half of the files that the process may open.
	MaxConnections int
	// MaxHeaderBytes is the most bytes of a request line and its header; a larger
	// one is rejected with 431.
	MaxHeaderBytes int
	// MaxStreams is the most concurrent streams of one HTTP/2 connection. client-go
	// multiplexes all its watches over one and opens another when it is full, so 250,
	// net/http's own, holds every informer of most controllers (kube-apiserver: 100).
	MaxStreams uint32

	// HandshakeTimeout bounds a TLS handshake.
	HandshakeTimeout time.Duration
	// ReadHeaderTimeout bounds the time from a request's first byte to the end of
	// its header (HTTP/1.1).
	ReadHeaderTimeout time.Duration
	// IdleTimeout is how long a connection without a request stays open.
	IdleTimeout time.Duration
	// BodyIdleTimeout is how long a request body may bring no byte while it is read.
	// The time for a whole body is the handler's matter (api.Request.Body).
	BodyIdleTimeout time.Duration
	// WriteTimeout is how long a client may take for half a MiB of a response. It is a limit on
	// standing still, not on the whole response. It may fire up to a quarter early, because
	// deadlines are not set again for each write. Over HTTP/2 it is given once more for each half
	// MiB that may still be on its way to the client, and adds to IdleTimeout and PingTimeout so.
	WriteTimeout time.Duration
	// PingInterval is how long an HTTP/2 client may be silent before it gets a PING, PingTimeout
	// how long it may take to acknowledge that.
	PingInterval, PingTimeout time.Duration

	// OnDrain, when set, is called once when Shutdown begins. It is to end the open
	// streams, spread over time, and must return when ctx ends: that is when
	// Shutdown's ends or no connection is left.
	OnDrain func(ctx context.Context)

	// Logger takes what an operator should see; nil discards. Registerer takes the
	// metrics; nil means none are registered.
	Logger     *slog.Logger
	Registerer prometheus.Registerer

	// LingerTimeout bounds how long a client is read from that is still sending when its response
	// is complete.
	LingerTimeout time.Duration
}

// withDefaults fills in zero values. Package config has rejected invalid ones.
func (o Options) withDefaults() (Options, error) {
	if o.Handler == nil {
		return o, errors.New("edge: no handler")
	}
	if o.Listen != "" && o.GetCertificate == nil {
		return o, errors.New("edge: no certificate")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.MaxConnections = cmp.Or(o.MaxConnections, defaults.MaxConnections)
	o.MaxHeaderBytes = cmp.Or(o.MaxHeaderBytes, defaults.MaxHeaderBytes)
	o.MaxStreams = cmp.Or(o.MaxStreams, defaults.MaxStreams)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, defaults.HandshakeTimeout)
	o.ReadHeaderTimeout = cmp.Or(o.ReadHeaderTimeout, defaults.ReadHeaderTimeout)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, defaults.IdleTimeout)
	o.BodyIdleTimeout = cmp.Or(o.BodyIdleTimeout, defaults.BodyIdleTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, defaults.WriteTimeout)
	o.PingInterval = cmp.Or(o.PingInterval, defaults.PingInterval)
	o.PingTimeout = cmp.Or(o.PingTimeout, defaults.PingTimeout)
	o.LingerTimeout = cmp.Or(o.LingerTimeout, lingerTimeout)
	return o, nil
}
