package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubeweir/kubeweir/origin/builtin/bootstrap"
	"github.com/kubeweir/kubeweir/origin/builtin/groups"
)

// hookPrefix begins the names of the health checks that report whether a post-start hook has
// finished (genericapiserver, AddPostStartHook).
const hookPrefix = "poststarthook/"

// hookPoll is how often hooks are polled: the library reports them only by health checks.
const hookPoll = 2 * time.Millisecond

// Start runs the server: it writes what has to exist (namespaces, roles, ...) and
// returns when requests are served completely. ctx bounds the starting only; what
// runs afterwards ends with Close. It is called once.
func (s *Server) Start(ctx context.Context) error {
	s.starting.Lock()
	defer s.starting.Unlock()
	began := time.Now()
	started, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.keeping, func() { cancel(errClosed) })()

	// The server syncs before the hooks check for it, because they check only every 100 ms.
	s.informers.Start(s.stopped.Done())
	if err := s.sync(started); err != nil {
		return fmt.Errorf("origin/server: starting: %w", err)
	}
	s.aggregator.Generic.RunPostStartHooks(s.stopped)
	if err := s.bootstrap(started); err != nil {
		return fmt.Errorf("origin/server: starting: %w", err)
	}
	if err := s.hooks(started); err != nil {
		return fmt.Errorf("origin/server: starting: %w", err)
	}
	if s.fairness != nil { // which finds the objects that the hooks have written
		s.fairness.Start(s.stopped)
		if err := s.fairness.WaitConfigured(started); err != nil {
			return fmt.Errorf("origin/server: waiting for the configuration of priority and fairness: %w", err)
		}
	}
	for name, signal := range s.aggregator.Generic.MuxAndDiscoveryCompleteSignals() {
		select {
		case <-signal:
		case <-started.Done():
			return fmt.Errorf("origin/server: waiting for %s: %w", name, context.Cause(started))
		}
	}
	close(s.complete)
	s.startSeconds.Set(time.Since(began).Seconds())
	return nil
}

var errClosed = errors.New("the server was closed")

// sync reads the objects that the hooks would wait for. The watches that it starts run until the
// server is closed.
func (s *Server) sync(ctx context.Context) error {
	done := make(chan error, 3)
	go func() { done <- s.crds.Sync(s.stopped) }()
	go func() { done <- s.aggregator.Sync(s.stopped) }()
	go func() { done <- s.syncBuiltin(s.stopped) }()
	for range cap(done) {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// syncBuiltin waits for the informers that the hooks of the built-in groups read.
func (s *Server) syncBuiltin(ctx context.Context) error {
	if !cache.WaitFor(ctx, "",
		s.informers.Core().V1().Services().Informer().HasSyncedChecker(),
		s.informers.Networking().V1().ServiceCIDRs().Informer().HasSyncedChecker(),
		s.informers.Networking().V1().IPAddresses().Informer().HasSyncedChecker(),
		s.informers.Flowcontrol().V1().FlowSchemas().Informer().HasSyncedChecker(),
		s.informers.Flowcontrol().V1().PriorityLevelConfigurations().Informer().HasSyncedChecker(),
	) {
		return fmt.Errorf("waiting for informers: %w", context.Cause(ctx))
	}
	return nil
}

// bootstrap writes the required objects while the hooks run. It keeps some of them in place until
// the server is closed.
func (s *Server) bootstrap(started context.Context) error {
	ctx, cancel := context.WithCancelCause(s.keeping)
	defer context.AfterFunc(started, func() { cancel(context.Cause(started)) })()
	wait, err := bootstrap.Run(ctx, bootstrap.Config{
		Client:           s.client,
		Authentication:   s.access.Published,
		Informers:        s.informers,
		AdvertiseAddress: s.opts.AdvertiseAddress,
		NoEndpoints:      s.opts.NoEndpoints,
		SharedStore:      s.opts.SharedStore,
		ServiceIP:        groups.FirstServiceIP(s.opts.ServiceCIDRs[0]),
		Logger:           s.opts.Logger,
	})
	s.running = wait
	if err == nil {
		close(s.bootstrapped)
	}
	return err
}

// hooks waits until all post-start hooks have returned.
func (s *Server) hooks(ctx context.Context) error {
	ticker := time.NewTicker(hookPoll)
	defer ticker.Stop()
	for {
		waiting := s.unfinishedHooks()
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", strings.Join(waiting, ", "), context.Cause(ctx))
		}
	}
}

func (s *Server) unfinishedHooks() []string {
	var names []string
	for _, check := range s.aggregator.Generic.HealthzChecks() {
		if strings.HasPrefix(check.Name(), hookPrefix) && check.Check(nil) != nil {
			names = append(names, check.Name())
		}
	}
	return names
}

// shutdown is Close, once.
func (s *Server) shutdown() error {
	s.Withdraw()
	s.stop()
	s.starting.Lock()
	defer s.starting.Unlock()
	s.requests.wait()
	if s.running != nil {
		s.running()
	}
	s.loopback.transport.Close()
	if s.fairness != nil {
		s.fairness.Wait()
	}
	if s.access != nil {
		s.access.Wait()
	}
	if s.informers != nil {
		s.informers.Shutdown()
	}
	if s.aggregator != nil {
		s.aggregator.Generic.Destroy()
	}
	return nil
}

// requests are those being served.
type requests struct {
	stopped context.Context
	mu      sync.Mutex
	closed  bool // nothing is added to running any more
	running sync.WaitGroup
	open    atomic.Int64 // of running
}

// handler serves requests by next, cancels them when the server is closed, and counts them so that
// wait can wait for them.
func (r *requests) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !r.begin() {
			http.Error(w, "the server is shutting down", http.StatusServiceUnavailable)
			return
		}
		defer r.running.Done()
		r.open.Add(1)
		defer r.open.Add(-1)
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		defer context.AfterFunc(r.stopped, cancel)()
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

func (r *requests) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.running.Add(1)
	return true
}

// wait refuses further requests and waits for those being served.
func (r *requests) wait() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
}
