package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app/decisions"
	"github.com/kubeweir/kubeweir/internal/contain"
	"github.com/kubeweir/kubeweir/origin/builtin"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/authz/rbac"
	"github.com/kubeweir/kubeweir/proxy/authz/revocation"
	"github.com/kubeweir/kubeweir/proxy/discovery"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/policy"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// discoveryWait is how long the start waits for the upstream's discovery and
// definitions. After it requests are served all the same: what is not known is
// forwarded.
const discoveryWait = 10 * time.Second

// cluster is one upstream with its own client, cache, authentication, authorization, handler and
// health. Its parts use its own logger and registerer, so a process can have several clusters. Its
// methods are called in the order in which they are declared.
type cluster struct {
	name          string // where there are several
	log           *slog.Logger
	registerer    prometheus.Registerer
	gatherer      prometheus.Gatherer // has what is registered there
	client        *upstream.Client
	discovery     *discovery.Catalog
	state         *state.Dir       // nil if nothing is saved for a restart
	decisions     *decisions.Store // nil if decisions about clients are not saved
	manager       *cache.Manager
	reader        *read.Reader
	watches       *watch.Watches
	resources     *discovery.Resources
	authenticator *authn.Authenticator
	authorizer    *authz.Authorizer
	offlineFor    atomic.Int64 // see offlineTTL
	revocation    *revocation.Watches
	health        *healthz.Health
	handler       *proxy.Gateway
	blocked       *policy.Blocked
	// decides is true if there are clients with identities of their own.
	decides bool
	// inProcess is true if the upstream is the origin.
	inProcess bool
	changed   atomic.Pointer[time.Time] // when RBAC objects did

	// background are the goroutines that run until stop.
	panics     *contain.Panics
	background sync.WaitGroup
	stop       context.CancelFunc
}

func newCluster(log *slog.Logger, registerer prometheus.Registerer, gatherer prometheus.Gatherer, blocked *policy.Blocked) *cluster {
	return &cluster{log: log, registerer: registerer, gatherer: gatherer, blocked: blocked, panics: contain.New(registerer, log), stop: func() {}}
}

// connect creates the client, which sends nothing yet.
func (c *cluster) connect(o upstream.Options) (err error) {
	o.Logger, o.Registerer = c.log, c.registerer
	if c.client, err = upstream.New(o); err != nil {
		return err
	}
	c.discovery = discovery.NewCatalog(c.client)
	return nil
}

// addCache creates the cache.
func (c *cluster) addCache(options cache.Options, limits *config.Limits, resources discovery.Options) (err error) {
	options.Logger, options.Registerer = c.log, c.registerer
	if c.manager, err = cache.NewManager(options); err != nil {
		return err
	}
	if c.reader, err = read.New(read.Options{
		DerivedBytes: int64(limits.DerivedCacheBytes), Registerer: c.registerer,
	}); err != nil {
		return err
	}
	c.watches = watch.New(c.reader, c.registerer)
	c.resources = discovery.NewResources(c.discovery, builtin.NewPrinters(), c.manager, c.log, resources)
	return nil
}

// addIdentity creates authentication and authorization.
func (c *cluster) addIdentity(authenticator authn.Options, authorizer authz.Options) (err error) {
	authenticator.Log, authenticator.Registerer = c.log, c.registerer
	if c.authenticator, err = authn.New(authenticator); err != nil {
		return err
	}
	authorizer.Log, authorizer.Registerer = c.log, c.registerer
	c.authorizer = authz.New(authorizer)
	return nil
}

// addHandler creates the handler of the cluster's requests. checks are additional health checks.
func (c *cluster) addHandler(watches revocation.Options, options proxy.Options, checks ...healthz.Check) {
	watches.Authorizer, watches.Authenticator, watches.Registerer = c.authorizer, c.authenticator, c.registerer
	c.revocation = revocation.New(watches)
	c.health = healthz.New(append(c.checks(), checks...)...)

	options.Forwarder, options.Resources = c.client, c.resources
	options.Manager, options.Reader, options.Watches = c.manager, c.reader, c.watches
	options.Authenticator, options.Authorizer, options.Revocation = c.authenticator, c.authorizer, c.revocation
	options.Blocked = c.blocked
	options.Health, options.Registerer, options.Logger = c.health, c.registerer, c.log
	c.handler = proxy.New(options)
}

// start runs the background tasks of the cluster until close. ctx bounds the wait for initial
// results.
func (c *cluster) start(ctx context.Context) {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	first, cancel := context.WithTimeout(ctx, discoveryWait)
	defer cancel()
	c.readDiscovery(first)
	keep := func(run func(ctx context.Context)) {
		c.panics.Keep(&c.background, "background", func() { run(background) })
	}
	keep(c.discovery.Run)
	keep(c.resources.Run)
	keep(c.revocation.Run)
	keep(c.handler.CountUsage)
	keep(c.startSaved)
	if c.decisions != nil {
		c.decisions.Start(background, c.panics)
	}
	if c.decides {
		keep(func(background context.Context) {
			rbac.Follow(background, c.resources, c.manager, c.rulesChanged, c.log)
		})
	}
	if !c.resources.WaitSynced(first) {
		c.log.Warn("custom resource definitions not read yet, forwarding custom resources until they are")
	}
}

// readDiscovery reads which resources the upstream serves. The saved discovery of an earlier run
// counts from the start, until the upstream has been read.
func (c *cluster) readDiscovery(ctx context.Context) {
	if c.decisions != nil && c.decisions.RestoreDiscovery() {
		return
	}
	if err := c.discovery.Refresh(ctx); err != nil {
		c.log.Warn("discovery of the upstream not read yet, forwarding all requests until it is", "error", err)
	}
}

// rulesChanged is called when an RBAC object has changed.
func (c *cluster) rulesChanged() {
	c.authorizer.Invalidate()
	now := time.Now()
	c.changed.Store(&now)
}

// offlineTTL returns how long the cluster's last decisions about clients count while it is
// unreachable; 0 if no client is served then.
func (c *cluster) offlineTTL() time.Duration { return time.Duration(c.offlineFor.Load()) }

// setPolicy replaces the settings that can change while the cluster is served.
func (c *cluster) setPolicy(g *config.Gateway) {
	ttl := offlineTTL(g)
	c.offlineFor.Store(int64(ttl))
	c.authenticator.SetUnverifiedTokens(unverifiedTokens(&g.Limits))
	c.authenticator.SetOfflineTTL(ttl)
	c.authorizer.SetOfflineTTL(ttl)
	c.handler.SetPolicy(policyOf(g))
}

// reachable reports whether the upstream can be reached, as far as is known.
func (c *cluster) reachable() bool {
	ok, _ := c.client.Reachable()
	return ok
}

// checks returns the health checks.
func (c *cluster) checks() []healthz.Check {
	return []healthz.Check{
		{Name: "resources", ReadyOnly: true, Err: func() error {
			if !c.resources.Settled() {
				return errors.New("custom resource definitions are not known yet")
			}
			return nil
		}},
		{Name: "upstream-servers", ReadyOnly: true, Err: c.client.CheckServers},
		{Name: "feeds", ReadyOnly: true, Err: func() error {
			for _, f := range c.manager.Status() {
				if f.State.Phase == reflector.Stale {
					return fmt.Errorf("%s (%s) is stale since %s", f.Resource.GroupResource(), f.Encoding, f.State.Since.UTC().Format(time.RFC3339))
				}
			}
			return nil
		}},
	}
}

// clusters implements served.
func (c *cluster) clusters() []*cluster { return []*cluster{c} }

// close ends all background tasks and releases everything, in reverse order of creation.
func (c *cluster) close() {
	c.stop()
	if c.manager != nil {
		c.manager.Close()
	}
	c.decisions.Close()
	if c.state != nil {
		closeState(c.state, c.log)
	}
	c.background.Wait()
	if c.reader != nil {
		c.reader.Close()
	}
	if c.client != nil {
		c.client.Close()
	}
}
