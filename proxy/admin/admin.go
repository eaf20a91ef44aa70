// Package admin serves what operators look at: metrics, health and profiles.
package admin

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy"
)

// Server is the admin listener: plain HTTP, not meant to be reachable by
// clients of the API.
type Server struct {
	http     *http.Server
	listener net.Listener
	done     chan error
}

// Start listens on addr ("host:port") and serves /metrics, /livez, /readyz,
// /healthz and /debug/pprof until Close.
func Start(addr string, gatherer prometheus.Gatherer, health *proxy.Health, log *slog.Logger) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { serveHealth(w, r, health) })
	s := &Server{
		http: &http.Server{
			Handler:           mux,
			ReadHeaderTimeout: 10 * time.Second,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
		listener: l,
		done:     make(chan error, 1),
	}
	go func() { s.done <- s.http.Serve(l) }()
	return s, nil
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close ends the server and what is under way, at once when ctx ends.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func serveHealth(w http.ResponseWriter, r *http.Request, health *proxy.Health) {
	resp := health.Serve(&api.Request{Method: r.Method, Path: r.URL.Path, RawQuery: r.URL.RawQuery}, true)
	if resp == nil {
		http.NotFound(w, r)
		return
	}
	for _, f := range resp.Header {
		w.Header().Add(f.Name, f.Value)
	}
	w.WriteHeader(resp.Status)
	_, _ = w.Write(resp.Body)
}
