package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/healthz"
)

// Options configure a Server.
type Options struct {
	// Addr is the host:port to listen on.
	Addr     string
	Gatherer prometheus.Gatherer
	Health   *healthz.Health
	// Profiling serves /debug/pprof to every client of the listener, with the command line and at
	// the cost of CPU time.
	Profiling bool
	// Verify compares the cache with the upstream for clients that post to VerifyPath.
	Verify Verify
	// Console serves / and /console/; nil to list the paths at /.
	Console http.Handler
	// TestAPI serves api.TestAPIPath; nil without one.
	TestAPI http.Handler
	Log     *slog.Logger
}

// Server is the admin listener: plain HTTP, which clients of the API are not meant to reach.
type Server struct {
	http     *http.Server
	listener net.Listener
	done     chan error
}

// idleTimeout is how long a connection without a request stays open. Without a timeout it would hold
// a file descriptor forever, of those that the gateway's other connections need.
const idleTimeout = 90 * time.Second

// Start listens, and serves until Close. On a loopback address it rejects web pages of other
// addresses, as the sidecar listener does.
func Start(o Options) (*Server, error) {
	l, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, err
	}
	var handler http.Handler = o.mux()
	if Loopback(o.Addr) {
		handler = localOnly(handler)
	}
	s := &Server{
		http: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       idleTimeout,
			ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		},
		listener: l,
		done:     make(chan error, 1),
	}
	go func() { s.done <- s.http.Serve(l) }()
	return s, nil
}

// Loopback reports whether only this machine reaches addr ("host:port").
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close ends the server and its requests in flight, at once when ctx ends.
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

// mux serves the paths that are configured.
func (o *Options) mux() *http.ServeMux {
	mux := http.NewServeMux()
	paths := []string{"/metrics", "/livez", "/readyz", "/healthz"}
	mux.Handle("/metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{}))
	if o.Profiling {
		paths = append(paths, "/debug/pprof/")
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	if o.Verify != nil {
		mux.Handle(VerifyPath, serveVerify(o.Verify))
	}
	if o.TestAPI != nil {
		mux.Handle(api.TestAPIPath, o.TestAPI)
	}
	if o.Console != nil {
		mux.Handle("/{$}", o.Console)
		mux.Handle("/console/", o.Console)
	} else {
		mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = io.WriteString(w, strings.Join(paths, "\n")+"\n")
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { serveHealth(w, r, o.Health) })
	return mux
}

// localOnly rejects requests that call the listener by a name that is not this machine's, and those
// from web pages of other addresses.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := authn.CheckLocal(r.Host, r.Header.Values); why != "" {
			http.Error(w, "forbidden: "+why, http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func serveHealth(w http.ResponseWriter, r *http.Request, health *healthz.Health) {
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
