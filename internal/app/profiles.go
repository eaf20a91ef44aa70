package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/clusterprofile"
	"github.com/kubeweir/kubeweir/proxy/healthz"
)

// profiles are the ClusterProfiles of a hub, each of which is a cluster as if it stood in the configuration.
type profiles struct {
	config   *config.Gateway // that the process was started with
	hub      string          // address
	follower *clusterprofile.Follower
	refused  *prometheus.GaugeVec     // by reason
	list     []clusterprofile.Profile // that there were last; guarded by source.mu, as listed
	listed   bool                     // some time
	taken    atomic.Bool              // list has been taken over
	saved    *profileStore            // nil without a state directory
	first    chan struct{}            // closed when it was tried to
}

// Why ClusterProfiles are not served.
const (
	refusedName    = "name-taken" // errNameTaken
	refusedAccess  = "access"     // it is not known how they are reached
	refusedCluster = "cluster"    // no cluster can be made of what is
	refusedMax     = "max"        // there are too many
)

// refusal is why a ClusterProfile is not served, or not as it is now.
type refusal struct{ reason, text string }

func newProfiles(g *config.Gateway, userAgent string, log *slog.Logger, registry *prometheus.Registry) (*profiles, error) {
	c := &g.ClusterProfiles
	refused := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubeweir_clusterprofiles_refused",
		Help: "ClusterProfiles of the hub that are not served, or not in their current state, by reason; the log names them.",
	}, []string{"reason"})
	for _, reason := range []string{refusedName, refusedAccess, refusedCluster, refusedMax} {
		refused.WithLabelValues(reason) // so that the first is a change, too
	}
	if err := registry.Register(refused); err != nil {
		return nil, fmt.Errorf("metrics of ClusterProfiles: %w", err)
	}
	hub, err := clusterprofile.HubConfig(c.Kubeconfig, c.Context)
	if err != nil {
		return nil, err
	}
	hub.UserAgent = userAgent
	follower, err := clusterprofile.NewFollower(clusterprofile.Options{
		Config: hub, Namespace: c.Namespace, LabelSelector: c.LabelSelector, Max: c.Max, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	return &profiles{config: g, hub: hub.Host, follower: follower, refused: refused, first: make(chan struct{})}, nil
}

// count tells how many profiles are refused, besides those that are too many.
func (p *profiles) count(refused map[string]refusal) {
	counts := map[string]int{refusedName: 0, refusedAccess: 0, refusedCluster: 0}
	for _, r := range refused {
		counts[r.reason]++
	}
	for reason, n := range counts {
		p.refused.WithLabelValues(reason).Set(float64(n))
	}
}

// part tells that it is not known yet which clusters there are.
func (p *profiles) part() healthz.Part {
	return healthz.Part{Name: "clusterprofiles", Health: healthz.New(healthz.Check{Name: "hub", ReadyOnly: true, Err: func() error {
		return errors.New("the ClusterProfiles of the hub are not known yet")
	}})}
}

// errNameTaken is why a ClusterProfile with the name of a cluster of the configuration is none.
var errNameTaken = errors.New("a cluster of the configuration has its name")

// wanted is a cluster that is to be served, be it of the configuration or of a ClusterProfile.
type wanted struct {
	config *config.Cluster
	// profile is that of the ClusterProfile, as namespace/name; "" if the configuration has the cluster.
	profile string
	// access is how it is reached where a ClusterProfile says so, else its kubeconfig says it; err is why that cannot be.
	access *clientcmdapi.Config
	err    error
	// origin tells whether what says how it is reached has changed.
	origin [sha256.Size]byte
}

// reach finds out how the cluster of a profile is reached.
func (w *wanted) reach(providers *clusterprofile.Providers, p *clusterprofile.Profile) (err error) {
	if w.access, err = providers.Kubeconfig(p); err != nil {
		return err
	}
	text, err := clientcmd.Write(*w.access)
	w.origin = sha256.Sum256(text)
	return err
}

// restConfig is how the cluster of a profile is reached, nil if a kubeconfig says it.
func (w *wanted) restConfig() (*rest.Config, error) {
	if w.access == nil {
		return nil, nil
	}
	return clientcmd.NewNonInteractiveClientConfig(*w.access, "", &clientcmd.ConfigOverrides{}, nil).ClientConfig()
}

// configured are the clusters of a configuration alone.
func configured(c *config.Gateway) (list []wanted) {
	for i := range c.Clusters {
		list = append(list, wanted{config: &c.Clusters[i], origin: digest(c.Clusters[i].Kubeconfig)})
	}
	return list
}

// wanted are all clusters that are to be served.
func (s *clusterSet) wanted(c *config.Gateway) ([]wanted, error) {
	list := configured(c)
	if s.profiles == nil {
		return list, nil
	}
	of := &s.profiles.config.ClusterProfiles
	providers, err := clusterprofile.LoadProviders(of.ProviderFile)
	if err != nil {
		return nil, fmt.Errorf("access providers of ClusterProfiles: %w", err)
	}
	for i := range s.profiles.list {
		p := &s.profiles.list[i]
		name := p.ClusterName(of.Namespace != "")
		w := wanted{config: c.ProfiledCluster(name), profile: p.Namespace + "/" + p.Name}
		if slices.ContainsFunc(c.Clusters, func(c config.Cluster) bool { return c.Name == name }) {
			w.err = errNameTaken
		} else {
			w.err = s.panics.Func("background", func() error { return w.reach(providers, p) })()
		}
		list = append(list, w)
	}
	return list, nil
}

// followProfiles serves the clusters of the hub's ClusterProfiles until background ends. It waits
// briefly for the first list.
func (s *Server) followProfiles(ctx, background context.Context) (err error) {
	p := s.several.profiles
	of := strings.Join([]string{p.hub, p.config.ClusterProfiles.Namespace, p.config.ClusterProfiles.LabelSelector}, " ")
	if p.saved, err = openProfileStore(&p.config.State, of, s.log); err != nil {
		return err
	}
	if p.saved != nil {
		s.panics.Keep(&s.background, "background", func() { p.saved.run(background) })
	}
	s.panics.Keep(&s.background, "background", func() { p.follower.Run(background, s.takeProfiles) })
	select {
	case <-p.first:
	case <-time.After(startWait):
		s.restoreProfiles(ctx)
	case <-ctx.Done():
	}
	return nil
}

// takeProfiles serves the clusters of list instead of those that there were.
func (s *Server) takeProfiles(ctx context.Context, list []clusterprofile.Profile) {
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	p := s.several.profiles
	p.list, p.listed = list, true
	p.refused.WithLabelValues(refusedMax).Set(float64(p.follower.Left()))
	if s.reconcileProfiles(ctx) {
		p.saved.save(list)
	}
	select {
	case <-p.first:
	default:
		close(p.first)
	}
}

// reconcileProfiles serves the clusters of the profiles that there are, and reports whether that
// could be done. The caller holds source.mu.
func (s *Server) reconcileProfiles(ctx context.Context) bool {
	err := s.panics.Func("background", func() error {
		done, err := s.reconcile(ctx, s.source.current, false)
		if err == nil && done.differs() {
			done.tell(s.log, "clusters of ClusterProfiles have changed")
		}
		return err
	})()
	if err != nil {
		s.log.Error("ClusterProfiles refused, the clusters stay as they are", "error", err)
		return false
	}
	s.several.profiles.taken.Store(true)
	return true
}
