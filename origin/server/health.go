package server

import (
	"errors"
	"net/http"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
)

// storeTimeout bounds the check of the store: probes wait for a second or a few.
const storeTimeout = 800 * time.Millisecond

// addHealth adds the checks of the store, with kube-apiserver's names, and of the cache.
func (s *Server) addHealth(c *genericapiserver.Config) {
	check := func(*http.Request) error { return s.opts.StoreHealth() }
	// kube-apiserver adds this hook before all others. Start does its work; see bootCheck.
	c.AddPostStartHookOrDie("start-apiserver-admission-initializer", func(ctx genericapiserver.PostStartHookContext) error {
		select {
		case <-s.bootstrapped:
		case <-ctx.Done():
		}
		return nil
	})
	c.AddHealthChecks(healthz.NamedGroupedCheck("etcd", "etcd", check))
	c.AddReadyzChecks(healthz.NamedGroupedCheck("etcd-readiness", "etcd-readiness", check))
	if s.opts.CacheHealth != nil {
		c.AddReadyzChecks(healthz.NamedCheck("cache", func(*http.Request) error { return s.opts.CacheHealth() }))
	}
}

// bootCheck returns the check of a post-start hook of kube-apiserver whose work Start does itself, or has
// done before.
func (s *Server) bootCheck(hook string) healthz.HealthChecker {
	return healthz.NamedCheck(hookPrefix+hook, func(*http.Request) error {
		select {
		case <-s.bootstrapped:
			return nil
		default:
			return errors.New("not finished")
		}
	})
}
