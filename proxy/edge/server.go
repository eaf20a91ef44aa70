package edge

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
)

// abortGrace is how long Shutdown waits for goroutines to end once it has closed their connections.
const abortGrace = 5 * time.Second

// Server serves a handler on its listeners. It is safe for concurrent use.
type Server struct {
	Shared
	// maxConnections is Options.MaxConnections, or what the limit of open files leaves.
	maxConnections int
	// cancel ends Base, when the server no longer waits for requests.
	cancel context.CancelFunc
	ended  func(*Conn) // remove
	// protocols serve the connections.
	protocols Protocols
	// wg counts accept loops and the call of OnDrain.
	wg sync.WaitGroup

	mu struct {
		sync.Mutex
		listeners []net.Listener
		conns     map[*Conn]struct{}
		// full is set from when a connection is rejected until a tenth of them is free, so
		// that one line is logged of it.
		full bool
		// empty is closed when the last connection ends while draining; nil before.
		empty chan struct{}
	}
}

// Addresses are the addresses that Start listens on; nil for a listener that is not configured.
type Addresses struct {
	Secure, Sidecar net.Addr
}

// New prepares a Server. Nothing listens before Start.
func New(o Options, p Protocols) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		Shared: Shared{
			Options: o, Log: o.Logger, Metrics: newMetrics(o.Registerer), Panics: contain.New(o.Registerer, o.Logger),
		},
		protocols:      p,
		maxConnections: min(o.MaxConnections, clientDescriptors()),
	}
	s.Base, s.cancel = context.WithCancel(context.Background())
	s.ended = s.remove
	s.mu.conns = make(map[*Conn]struct{})
	s.registerState(o.Registerer)
	s.tls = tlsConfig(o.GetCertificate, o.MinTLSVersion, o.CipherSuites)
	if o.GetCertificate != nil {
		registerCertificate(o.Registerer, o.GetCertificate)
	}
	return s, nil
}

// registerState shows how much of the server's limits is in use.
func (s *Server) registerState(r prometheus.Registerer) {
	constant := func(n int) func() int { return func() int { return n } }
	gaugefunc.Register(r, "kubeweir_connections_limit",
		"Limit on client connections, above which new ones are closed at once: the configured value, or half of the process's file descriptors.", constant(s.maxConnections))
	gaugefunc.Register(r, "kubeweir_response_buffer_bytes",
		"Bytes of buffers held by responses in flight, most of which wait for their clients, and by unread data received over HTTP/2.", s.Buffers.held.Load)
	gaugefunc.Register(r, "kubeweir_response_buffer_bytes_limit",
		"Limit on the bytes of response buffers. If a user holds more than 1 MiB and more than three times the free bytes, watches whose clients do not read are ended.", constant(BufferBudget))
	gaugefunc.Register(r, "kubeweir_waiting_stream_bytes",
		"Approximate bytes of HTTP/2 responses that wait until their clients read or open the flow control window: 8 KiB each, more with a large header.", s.Buffers.waiting.Load)
	gaugefunc.Register(r, "kubeweir_waiting_stream_bytes_limit",
		"Limit on those bytes. A user who holds more than 1 MiB and more than three times the free bytes gets only responses that can be sent at once; unauthenticated clients together have an eighth.", constant(WaitingAllowed))
}

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
		if sidecar, err = listenSidecar(s.Options.SidecarListen); err != nil {
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
		c.protocols, c.ended = s.protocols, s.ended
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
	s.Metrics.rejected.WithLabelValues(listenerName(c.client.listener), "limit").Inc()
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

// Shutdown ends the server gracefully: it stops accepting, closes idle connections, makes the
// others end with their present response (Connection: close, GOAWAY), calls OnDrain, and waits
// until all have ended. If ctx ends first, it cancels the requests, closes the connections, and
// returns ctx's error. It may be called once.
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
	open := slices.Collect(maps.Keys(s.mu.conns))
	s.mu.Unlock()

	var err error
	for _, ln := range listeners {
		if closeErr := ln.Close(); closeErr != nil && !errors.Is(closeErr, net.ErrClosed) {
			err = errors.Join(err, closeErr)
		}
	}
	for _, c := range open {
		c.startDrain()
	}
	drainCtx, drained := context.WithCancel(ctx)
	defer drained()
	if s.Options.OnDrain != nil {
		s.Panics.Go(&s.wg, "connection", func() { s.Options.OnDrain(drainCtx) })
	}
	select {
	case <-empty:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
		s.abortAll(empty)
	}
	s.cancel()
	drained()
	s.wg.Wait()
	return err
}

// abortAll closes every connection and waits a little for their goroutines. One
// that is stuck in a handler is not waited for.
func (s *Server) abortAll(empty <-chan struct{}) {
	s.cancel()
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.mu.conns))
	s.mu.Unlock()
	if len(open) > 0 {
		s.Log.Warn("connections cut at the end of the drain", "connections", len(open))
	}
	for _, c := range open {
		c.Abort()
	}
	select {
	case <-empty:
	case <-time.After(abortGrace):
		s.Log.Error("requests are still running after their connections were cut")
	}
}
