package aggregator

import (
	"context"
	"fmt"

	remotestatus "k8s.io/kube-aggregator/pkg/controllers/status/remote"
)

// start is the post-start hook: what is needed, or will be, ends with ctx.
func (r *remote) start(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.ctx = ctx
	r.begin()
}

// needed records that an APIService has a service.
func (r *remote) needed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.wanted = true
	r.begin()
}

// begin is called with mu locked.
func (r *remote) begin() {
	if r.mu.begun || !r.mu.wanted || r.mu.ctx == nil {
		return
	}
	r.mu.begun = true
	s := r.server
	controller, err := s.availability()
	switch {
	case r.mu.ctx.Err() != nil:
		return
	case err != nil:
		s.cfg.Logger.Error("the availability of APIServices is not looked at", "error", err)
		return
	}
	s.cfg.Informers.Start(r.mu.ctx.Done())
	go controller.Run(workers, r.mu.ctx.Done())
}

// availability creates the library's controller, which panics if the informers, and so the server,
// have stopped meanwhile.
func (s *Server) availability() (c *remotestatus.AvailableConditionController, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("making the controller: %v", p)
		}
	}()
	return remotestatus.New(
		s.APIServices,
		s.cfg.Informers.Core().V1().Services(),
		s.cfg.Informers.Discovery().V1().EndpointSlices(),
		s.clients.ApiregistrationV1(),
		s.dial,
		func() ([]byte, []byte) { return s.cfg.ProxyClientCert, s.cfg.ProxyClientKey },
		s.cfg.ServiceResolver,
		s.metrics,
	)
}
