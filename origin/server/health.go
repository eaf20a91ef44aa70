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

// bootHooks are the post-start hooks of kube-apiserver whose work Start does itself, or has done
// before.
var bootHooks = []string{
	"start-apiserver-admission-initializer",
	"start-system-namespaces-controller",
	"start-cluster-authentication-info-controller",
	"start-legacy-token-tracking-controller",
	"rbac/bootstrap-roles",
	"scheduling/bootstrap-system-priority-classes",
	"bootstrap-controller",
}

// addHealth adds the checks of the store, with kube-apiserver's names, and of the cache.
func (s *Server) addHealth(c *genericapiserver.Config) {
	check := func(*http.Request) error { return s.opts.StoreHealth() }
	c.AddHealthChecks(healthz.NamedGroupedCheck("etcd", "etcd", check))
	c.AddReadyzChecks(healthz.NamedGroupedCheck("etcd-readiness", "etcd-readiness", check))
	if s.opts.CacheHealth != nil {
		c.AddReadyzChecks(healthz.NamedCheck("cache", func(*http.Request) error { return s.opts.CacheHealth() }))
	}
}

// bootChecks returns the checks of bootHooks.
func (s *Server) bootChecks() (checks []healthz.HealthChecker) {
	for _, name := range bootHooks {
		checks = append(checks, healthz.NamedCheck(hookPrefix+name, func(*http.Request) error {
			select {
			case <-s.bootstrapped:
				return nil
			default:
				return errors.New("not finished")
			}
		}))
	}
	return checks
}
