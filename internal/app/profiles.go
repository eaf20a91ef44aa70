package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app/savedprofiles"
	"github.com/kubeweir/kubeweir/internal/clusterprofile"
	"github.com/kubeweir/kubeweir/proxy/healthz"
)

// profiles are the ClusterProfiles of a hub. Each is served like a cluster of the configuration.
type profiles struct {
	config   *config.Gateway // that the process was started with
	hub      string          // address
	follower *clusterprofile.Follower
	rejected *prometheus.GaugeVec     // by reason
	list     []clusterprofile.Profile // the last ones; guarded by source.mu, as is listed
	listed   bool                     // list was read from the hub
	taken    atomic.Bool              // the clusters of list are served
	saved    *savedprofiles.Store     // nil without a state directory
	first    chan struct{}            // closed when a list of the hub was tried
}

// Reasons why ClusterProfiles are not served.
const (
	rejectedName    = "name-taken" // errNameTaken
	rejectedAccess  = "access"     // there is no access provider, or no valid one
	rejectedCluster = "cluster"    // the cluster cannot be created
	rejectedMax     = "max"        // there are too many
)

// rejection is why a ClusterProfile, or its current state, is not served.
type rejection struct{ reason, text string }

func newProfiles(g *config.Gateway, userAgent string, log *slog.Logger, registry *prometheus.Registry) (*profiles, error) {
	c := &g.ClusterProfiles
	rejected := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubeweir_clusterprofiles_rejected",
		Help: "ClusterProfiles of the hub that are not served, or not in their current state, by reason; the log names them.",
	}, []string{"reason"})
	for _, reason := range []string{rejectedName, rejectedAccess, rejectedCluster, rejectedMax} {
		rejected.WithLabelValues(reason) // so that the first is a change, too
	}
	if err := registry.Register(rejected); err != nil {
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
	return &profiles{config: g, hub: hub.Host, follower: follower, rejected: rejected, first: make(chan struct{})}, nil
}

// count updates the metric of rejected profiles, except for those that are too many.
func (p *profiles) count(rejected map[string]rejection) {
	counts := map[string]int{rejectedName: 0, rejectedAccess: 0, rejectedCluster: 0}
	for _, r := range rejected {
		counts[r.reason]++
	}
	for reason, n := range counts {
		p.rejected.WithLabelValues(reason).Set(float64(n))
	}
}

// part is the failing health check while the clusters are not known.
func (p *profiles) part() healthz.Part {
	return healthz.Part{Name: "clusterprofiles", Health: healthz.New(healthz.Check{Name: "hub", ReadyOnly: true, Err: func() error {
		return errors.New("ClusterProfiles not read from the hub yet")
	}})}
}

// errNameTaken rejects a ClusterProfile with the name of a cluster of the configuration.
var errNameTaken = errors.New("a cluster of the configuration has this name")

// wanted is a cluster to serve, from the configuration or from a ClusterProfile.
type wanted struct {
	config *config.Cluster
	// profile is the namespace/name of the ClusterProfile, "" for a cluster of the configuration.
	profile string
	// access replaces the kubeconfig of a ClusterProfile; err is why there is none.
	access *clientcmdapi.Config
	err    error
	// origin is the digest of the kubeconfig.
	origin [sha256.Size]byte
}

// reach sets access from a profile.
func (w *wanted) reach(providers *clusterprofile.Providers, p *clusterprofile.Profile) (err error) {
	if w.access, err = providers.Kubeconfig(p); err != nil {
		return err
	}
	text, err := clientcmd.Write(*w.access)
	w.origin = sha256.Sum256(text)
	return err
}

// restConfig returns the client configuration of access, nil without it.
func (w *wanted) restConfig() (*rest.Config, error) {
	if w.access == nil {
		return nil, nil
	}
	return clientcmd.NewNonInteractiveClientConfig(*w.access, "", &clientcmd.ConfigOverrides{}, nil).ClientConfig()
}

// configured returns the clusters of a configuration, without ClusterProfiles.
func configured(c *config.Gateway) (list []wanted) {
	for i := range c.Clusters {
		list = append(list, wanted{config: &c.Clusters[i], origin: digest(c.Clusters[i].Kubeconfig)})
	}
	return list
}

// wanted returns all clusters to serve.
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
func (s *Server) followProfiles(ctx, background context.Context) error {
	p := s.several.profiles
	of := strings.Join([]string{p.hub, p.config.ClusterProfiles.Namespace, p.config.ClusterProfiles.LabelSelector}, " ")
	dir, err := openSavedProfiles(&p.config.State, s.log)
	if err != nil {
		return err
	}
	if dir != nil {
		p.saved = savedprofiles.New(dir, of, p.config.State.MaxAge, s.log)
		s.panics.Keep(&s.background, "background", func() {
			defer closeState(dir, s.log)
			p.saved.Run(background)
		})
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

// takeProfiles serves the clusters of list instead of the previous ones.
func (s *Server) takeProfiles(ctx context.Context, list []clusterprofile.Profile) {
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	p := s.several.profiles
	p.list, p.listed = list, true
	p.rejected.WithLabelValues(rejectedMax).Set(float64(p.follower.Left()))
	if s.reconcileProfiles(ctx) {
		p.saved.Save(list)
	}
	select {
	case <-p.first:
	default:
		close(p.first)
	}
}

// reconcileProfiles serves the clusters of the current profiles, and reports whether it succeeded. The
// caller holds source.mu.
func (s *Server) reconcileProfiles(ctx context.Context) bool {
	err := s.panics.Func("background", func() error {
		done, err := s.reconcile(ctx, s.source.current, false)
		if err == nil && done.differs() {
			done.logMembers(s.log, "clusters of ClusterProfiles changed")
		}
		return err
	})()
	if err != nil {
		s.log.Error("ClusterProfiles rejected, clusters unchanged", "error", err)
		return false
	}
	s.several.profiles.taken.Store(true)
	return true
}

// restoreProfiles serves the clusters of the saved profiles, unless those of the hub are known.
func (s *Server) restoreProfiles(ctx context.Context) {
	p := s.several.profiles
	if p.saved == nil || p.taken.Load() {
		return
	}
	list := p.saved.Load()
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	if list == nil || p.listed {
		return
	}
	p.list = list
	s.log.Warn("hub of the ClusterProfiles unreachable, serving the clusters of the saved ClusterProfiles until it responds", "profiles", len(list))
	s.reconcileProfiles(ctx)
}

// profilesFolder, in the state directory, has a name that no cluster can have.
const profilesFolder = "_clusterprofiles"

// openSavedProfiles opens the directory of the saved profiles; nil without a state directory.
func openSavedProfiles(s *config.State, log *slog.Logger) (*state.Dir, error) {
	if s.Dir == "" {
		return nil, nil
	}
	key, err := stateKey(s.KeyFile, log)
	if err != nil {
		return nil, err
	}
	dir, err := state.Open(state.Options{
		Dir: filepath.Join(s.Dir, profilesFolder), Key: key, MaxBytes: int64(s.MaxBytes), BytesPerSecond: int64(s.WriteRate), Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	return dir, nil
}
