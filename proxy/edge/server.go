package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/contain"
)

// cutGrace is how long Shutdown waits for goroutines to end once it has closed
// their connections.
const cutGrace = 5 * time.Second

// Server serves a handler on its listeners. It is safe for concurrent use.
type Server struct {
	Shared
	caPEM []byte

	// maxConnections is Options.MaxConnections, or what the limit of open files leaves.
	maxConnections int
	// cut ends base, when the server no longer waits for requests.
	cut context.CancelFunc

	// wg counts accept loops and the call of OnDrain.
	wg sync.WaitGroup

	mu struct {
		sync.Mutex
		listeners []net.Listener
		conns     map[*Conn]struct{}
		// full is set from when a connection is refused until a tenth of them is free, so
		// that one line is logged of it.
		full bool
		// empty is closed when the last connection ends while draining; nil before.
		empty chan struct{}
	}
}

// Addresses are what Start bound; nil for a listener that was not asked for.
type Addresses struct {
	Secure, Sidecar net.Addr
}

// New prepares a Server: it validates the options and reads or generates the
// serving certificate. Nothing listens before Start.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{Shared: Shared{Options: o, Log: o.Logger, Metrics: NewMetrics(o.Registerer), Panics: contain.New(o.Registerer, o.Logger)}}
	s.ended = s.remove
	s.maxConnections = min(o.MaxConnections, clientDescriptors())
	s.Base, s.cut = context.WithCancel(context.Background())
	s.mu.conns = make(map[*Conn]struct{})
	watchBuffers(o.Registerer, &s.Buffers)
	watchConnections(o.Registerer, s.maxConnections)
	get := o.GetCertificate
	if get == nil {
		source, err := s.certificateSource()
		if err != nil {
			return nil, err
		}
		get = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return source.Certificate() }
	}
	s.Tls = tlsConfig(get, o.MinTLSVersion, o.CipherSuites)
	if o.Listen != "" || o.GetCertificate != nil {
		watchCertificate(o.Registerer, get)
	}
	return s, nil
}

// certificateSource reads the certificate's files or generates one.
func (s *Server) certificateSource() (certificateSource, error) {
	if s.Options.CertFile != "" {
		return NewFileCertificate(s.Options.CertFile, s.Options.KeyFile, time.Now, s.Log, s.Metrics)
	}
	host, _, _ := net.SplitHostPort(s.Options.Listen)
	generated, err := NewGeneratedCertificate(host, time.Now)
	if err != nil {
		return nil, err
	}
	s.caPEM = generated.CaPEM
	return generated, nil
}

// CAPEM is the certificate of the generated CA that signed the serving
// certificate, or nil when a certificate was given.
func (s *Server) CAPEM() []byte { return s.caPEM }

// Start opens the listeners of the options and serves them until Shutdown. On an
// error nothing is left open.
func (s *Server) Start() (Addresses, error) {
	var bound Addresses
	var secure, sidecar net.Listener
	var err error
	if s.Options.Listen != "" {
		if secure, err = listenSecure(s.Options.Listen); err != nil {
			return bound, err
		}
		bound.Secure = secure.Addr()
	}
	if s.Options.SidecarListen != "" {
		if sidecar, err = ListenSidecar(s.Options.SidecarListen, s.Options.SocketMode); err != nil {
			if secure != nil {
				_ = secure.Close()
			}
			return Addresses{}, err
		}
		bound.Sidecar = sidecar.Addr()
	}
	if secure != nil {
		err = s.Serve(secure, api.ListenerSecure)
	}
	if sidecar != nil {
		err = errors.Join(err, s.Serve(sidecar, api.ListenerSidecar))
	}
	return bound, err
}

// Serve accepts connections from ln until Shutdown, which closes it; it does not
// block. Connections of api.ListenerSecure begin with a TLS handshake.
func (s *Server) Serve(ln net.Listener, kind api.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Draining.Load() {
		_ = ln.Close()
		return errors.New("the server was shut down")
	}
	s.mu.listeners = append(s.mu.listeners, ln)
	s.Panics.Keep(&s.wg, "connection", func() { s.accept(ln, kind) })
	return nil
}

// accept is the loop of one listener.
func (s *Server) accept(ln net.Listener, kind api.Listener) {
	var pause time.Duration
	for {
		nc, err := ln.Accept()
		if err != nil {
			if s.Draining.Load() || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, most often: connections that end free some.
			s.Metrics.rejected.WithLabelValues(listenerName(kind), "accept").Inc()
			if pause == 0 {
				s.Log.Error("connections cannot be accepted, trying again each second", "listener", listenerName(kind), "error", err)
			}
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
			case <-s.Base.Done():
				return
			}
			continue
		}
		if pause > 0 {
			pause = 0
			s.Log.Info("connections are accepted again", "listener", listenerName(kind))
		}
		s.Metrics.accepted.WithLabelValues(listenerName(kind)).Inc()
		c := NewConn(&s.Shared, nc, kind)
		if !s.add(c) {
			_ = nc.Close()
			continue
		}
		s.Panics.Go(nil, "connection", c.run)
	}
}

// add takes a connection in, unless the server drains or is full.
func (s *Server) add(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Draining.Load() {
		return false
	}
	if len(s.mu.conns) < s.maxConnections {
		s.mu.conns[c] = struct{}{}
		return true
	}
	s.Metrics.rejected.WithLabelValues(listenerName(c.Listener), "limit").Inc()
	if !s.mu.full {
		s.mu.full = true
		s.Log.Warn("connections are refused, too many are open", "connections", s.maxConnections, "maxConnections", s.Options.MaxConnections)
	}
	return false
}

// remove is the last thing that the owner of a connection does with it.
func (s *Server) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, c)
	if s.mu.full && len(s.mu.conns) <= s.maxConnections-s.maxConnections/10 {
		s.mu.full = false
	}
	if s.mu.empty != nil && len(s.mu.conns) == 0 {
		close(s.mu.empty)
		s.mu.empty = nil
	}
}

// Shutdown ends the server gracefully: it stops accepting, closes idle
// connections, tells the others to end with the response they are in
// (Connection: close, GOAWAY), calls OnDrain, and waits until all are gone. When
// ctx ends first it cuts them: request contexts end, connections are closed, and
// its error is ctx's. It is to be called once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.Draining.Store(true)
	listeners := s.mu.listeners
	s.mu.listeners = nil
	empty := make(chan struct{})
	if len(s.mu.conns) == 0 {
		close(empty)
	} else {
		s.mu.empty = empty
	}
	open := s.connections()
	s.mu.Unlock()

	var err error
	for _, ln := range listeners {
		if closeErr := ln.Close(); closeErr != nil && !errors.Is(closeErr, net.ErrClosed) {
			err = errors.Join(err, closeErr)
		}
	}
	for _, c := range open {
		c.closeIfIdle()
		if drain := c.drain.Load(); drain != nil {
			(*drain)()
		}
	}
	drainCtx, drained := context.WithCancel(ctx)
	defer drained()
	if s.Options.OnDrain != nil {
		s.Panics.Go(&s.wg, "connection", func() { s.Options.OnDrain(drainCtx) })
	}
	if !s.awaitEmpty(ctx, empty) {
		err = errors.Join(err, ctx.Err())
		s.cutAll(empty)
	}
	s.cut()
	drained()
	s.wg.Wait()
	return err
}

// awaitEmpty waits for the last connection's end, until ctx ends.
func (s *Server) awaitEmpty(ctx context.Context, empty <-chan struct{}) bool {
	select {
	case <-empty:
		return true
	case <-ctx.Done():
		return false
	}
}

// cutAll closes every connection and waits a little for their goroutines. One
// that is stuck in a handler is not waited for.
func (s *Server) cutAll(empty <-chan struct{}) {
	s.cut()
	s.mu.Lock()
	open := s.connections()
	s.mu.Unlock()
	if len(open) > 0 {
		s.Log.Warn("connections cut at the end of the drain", "connections", len(open))
	}
	for _, c := range open {
		c.Abort()
	}
	grace := time.NewTimer(cutGrace)
	defer grace.Stop()
	select {
	case <-empty:
	case <-grace.C:
		s.Log.Error("requests are still running after their connections were cut")
	}
}

// connections is a copy of the open ones. The caller holds mu.
func (s *Server) connections() []*Conn {
	open := make([]*Conn, 0, len(s.mu.conns))
	for c := range s.mu.conns {
		open = append(open, c)
	}
	return open
}
