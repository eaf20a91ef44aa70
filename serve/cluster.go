package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/origin/builtin"
	"github.com/kubeweir/kubeweir/proxy"
	"github.com/kubeweir/kubeweir/proxy/identity"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// discoveryWait is how long the start waits for the upstream's discovery and
// definitions. After it requests are served all the same: what is not known is
// forwarded.
const discoveryWait = 10 * time.Second

// cluster is one upstream: its client, what of it is cached, and what decides who may
// read that.
type cluster struct {
	log        *slog.Logger
	client     *upstream.Client
	discovery  *upstream.Discovery
	manager    *cache.Manager
	reader     *cache.Reader
	watches    *cache.Watches
	resources  *proxy.Resources
	authorizer *identity.Authorizer
	revocation *identity.Watches
	// decides tells that there are clients with identities of their own.
	decides bool

	// background are the goroutines that run until the context of start ends.
	background sync.WaitGroup
}

// connect makes the client; nothing is asked yet.
func (c *cluster) connect(o upstream.Options) (err error) {
	if c.client, err = upstream.New(o); err != nil {
		return err
	}
	c.discovery = c.client.Discovery(upstream.DiscoveryOptions{})
	return nil
}

// addCache makes what reads are answered from.
func (c *cluster) addCache(options cache.Options, limits *config.Limits, resources proxy.ResourcesOptions) (err error) {
	if c.manager, err = cache.NewManager(options); err != nil {
		return err
	}
	if c.reader, err = cache.NewReader(cache.ReaderOptions{
		DerivedBytes: int64(limits.DerivedCacheBytes), Registerer: options.Registerer,
	}); err != nil {
		return err
	}
	c.watches = cache.NewWatches(c.reader, options.Registerer)
	c.resources = proxy.NewResources(c.discovery, builtin.NewPrinters(), c.manager, c.log, resources)
	return nil
}

// follow makes what ends the watches of those who lost their permission.
func (c *cluster) follow(o identity.WatchesOptions, authenticator *identity.Authenticator, registerer prometheus.Registerer) {
	o.Authorizer, o.Authenticator, o.Registerer = c.authorizer, authenticator, registerer
	c.revocation = identity.NewWatches(o)
}

// serveThrough tells a proxy of the cluster.
func (c *cluster) serveThrough(o *proxy.Options) {
	o.Forwarder, o.Resources = c.client, c.resources
	o.Manager, o.Reader, o.Watches = c.manager, c.reader, c.watches
	o.Authorizer, o.Revocation = c.authorizer, c.revocation
}

// start runs what feeds and guards the cache until background ends. ctx bounds the
// waiting for what is known at the start.
func (c *cluster) start(ctx, background context.Context) {
	first, cancel := context.WithTimeout(ctx, discoveryWait)
	defer cancel()
	if err := c.discovery.Refresh(first); err != nil {
		c.log.Warn("the upstream's discovery cannot be read yet, everything is forwarded until it can", "error", err)
	}
	c.background.Go(func() { c.discovery.Run(background) })
	c.background.Go(func() { c.resources.Run(background) })
	c.background.Go(func() { c.revocation.Run(background) })
	if c.decides {
		c.background.Go(func() {
			proxy.FollowRBAC(background, c.resources, c.manager, c.authorizer.Invalidate, c.log)
		})
	}
	if !c.resources.WaitSynced(first) {
		c.log.Warn("custom resource definitions are not known yet, custom resources are forwarded until they are")
	}
}

// checks are the conditions of health.
func (c *cluster) checks() []proxy.Check {
	return []proxy.Check{
		{Name: "resources", Ready: true, Err: func() error {
			if !c.resources.Settled() {
				return errors.New("custom resource definitions are not known yet")
			}
			return nil
		}},
		{Name: "feeds", Ready: true, Err: func() error {
			for _, f := range c.manager.Status() {
				if f.State.Phase == cache.Stale {
					return fmt.Errorf("%s (%s) is stale since %s", f.Resource.GroupResource(), f.Encoding, f.State.Since.UTC().Format(time.RFC3339))
				}
			}
			return nil
		}},
	}
}

// close releases everything, in the reverse order of its making. The context that start
// was given must have ended.
func (c *cluster) close() {
	if c.manager != nil {
		c.manager.Close()
	}
	c.background.Wait()
	if c.reader != nil {
		c.reader.Close()
	}
	if c.client != nil {
		c.client.Close()
	}
}
