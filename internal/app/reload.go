package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/config"
)

// configSource is where the configuration of a gateway comes from.
type configSource struct {
	ConfigSource
	providers string // file of the access providers of ClusterProfiles; "" for none
	// cover makes the certificate that is served with good for a configuration.
	cover   func(*config.Gateway) error
	metrics *reloadMetrics
	// mu is held while the configuration is read and counts from then on; it guards what
	// follows. current has the settings in force, read is what was read last and was valid, seen
	// what its files looked like before that, and last what they did at the last look.
	mu            sync.Mutex
	current, read *config.Gateway
	rejected      string    // why what was read last is not in force, "" if it is
	tried         time.Time // when that was read
	seen, last    map[string]string
}

// ConfigSource is what FollowConfig reads.
type ConfigSource struct {
	// File is the configuration file, "" if there are flags alone.
	File string
	// Load reads it, with the flags, and checks it.
	Load func() (*config.Gateway, error)
	// SetLogLevel changes what is logged.
	SetLogLevel func(slog.Level)
}

// reloadMetrics are the metrics of the last reload.
type reloadMetrics struct {
	reloads    *prometheus.CounterVec
	successful prometheus.Gauge
	at         prometheus.Gauge
	waiting    prometheus.Gauge
}

func newReloadMetrics(registerer prometheus.Registerer) *reloadMetrics {
	m := &reloadMetrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_config_reloads_total",
			Help: "Reloads of the configuration, by result: success, failure (the settings in force stay).",
		}, []string{"result"}),
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubeweir_config_last_reload_successful",
			Help: "1 if the last reload of the configuration succeeded, 0 if it was rejected.",
		}),
		at: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubeweir_config_last_reload_success_timestamp_seconds",
			Help: "Time of the last successful reload of the configuration, in seconds since 1970.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubeweir_config_restart_settings",
			Help: "Settings in the configuration that differ from those in force and need a restart; the log names them.",
		}),
	}
	m.reloads.WithLabelValues("success")
	m.reloads.WithLabelValues("failure")
	m.successful.Set(1)
	m.at.SetToCurrentTime()
	registerer.MustRegister(m.reloads, m.successful, m.at, m.waiting)
	return m
}

func (m *reloadMetrics) failed() {
	m.reloads.WithLabelValues("failure").Inc()
	m.successful.Set(0)
}

func (m *reloadMetrics) succeeded(waiting int) {
	m.reloads.WithLabelValues("success").Inc()
	m.successful.Set(1)
	m.at.SetToCurrentTime()
	m.waiting.Set(float64(waiting))
}

// lookPeriod is how often is looked whether a file of the configuration has changed. One
// that has is read at the next look, if it stayed as it is until then: what somebody still
// writes would be read as a configuration with fewer clusters.
const lookPeriod = time.Second

// FollowConfig has a gateway read its configuration again at SIGHUP, and when the file, or a
// kubeconfig that it names for one of several clusters, has changed. It is to be called before
// Start.
func (s *Server) FollowConfig(from ConfigSource) {
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	// The files may have been written since they were first read. As nothing is seen yet, the
	// second look reads them again.
	s.source.ConfigSource = from
}

// look returns the size and modification time of each file of a configuration, by name.
func (c *configSource) look(of *config.Gateway) map[string]string {
	files := map[string]string{c.File: ""}
	if c.providers != "" {
		files[c.providers] = ""
	}
	for i := range of.Clusters {
		files[of.Clusters[i].Kubeconfig] = ""
	}
	for file := range files {
		info, err := os.Stat(file)
		switch {
		case err == nil:
			files[file] = fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano())
		case errors.Is(err, fs.ErrNotExist):
			files[file] = "none"
		default:
			files[file] = err.Error()
		}
	}
	return files
}

// changed looks, and reports whether a file differs from what was read and is as it was at
// the look before. The caller holds mu.
func (c *configSource) changed() bool {
	now := c.look(c.current)
	still := maps.Equal(now, c.last)
	c.last = now
	return still && !maps.Equal(now, c.seen)
}

// followSignals does what SIGHUP asks for, until ctx ends: the audit log is opened anew, for tools
// that rotate logs, and the configuration is read again, as it is when its files change.
func (s *Server) followSignals(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	s.source.mu.Lock()
	reloads := s.source.File != ""
	s.source.mu.Unlock()
	var look <-chan time.Time
	if reloads {
		ticker := time.NewTicker(lookPeriod)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-hangup:
			s.audit.Reopen()
			if reloads {
				s.reload(ctx, true)
			}
		case <-look:
			s.reload(ctx, false)
		case <-ctx.Done():
			return
		}
	}
}

// retryPeriod is how often a configuration that was rejected is read again, as the reason may be
// elsewhere: a folder that cannot be written, a cluster that cannot be connected to.
const retryPeriod = 30 * time.Second

// reload reads the configuration again: if it is asked for, a file has changed, or the last one was
// rejected. Why one is rejected is logged once.
func (s *Server) reload(ctx context.Context, requested bool) {
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	now := time.Now()
	if again := s.source.rejected != "" && now.Sub(s.source.tried) >= retryPeriod; !s.source.changed() && !requested && !again {
		return
	}
	s.source.tried = now
	s.source.seen = s.source.look(s.source.current)
	err := s.panics.Func("background", func() error {
		c, err := s.source.Load()
		if err != nil {
			return err
		}
		return s.adopt(ctx, c, requested)
	})()
	before := s.source.rejected
	if s.source.rejected = ""; err == nil {
		return
	}
	if s.source.rejected = err.Error(); requested || s.source.rejected != before {
		s.source.metrics.failed()
		s.log.Error("configuration rejected, the settings in force stay", "error", err)
	}
}

// Reload makes a gateway serve by c from now on. If there are several clusters, it leaves unchanged
// clusters alone and ends clusters that are no longer configured. It replaces a cluster that
// changed in more than its policy, and ends the old one afterwards. On an error all stays as it is.
// Reload must not be called before Start or after Close.
func (s *Server) Reload(ctx context.Context, c *config.Gateway) error {
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	return s.adopt(ctx, c, true)
}

// adopt is Reload for who holds source.mu. Where nobody asked for it, it is logged only if
// something differs from what was read before.
func (s *Server) adopt(ctx context.Context, c *config.Gateway, requested bool) error {
	switch {
	case s.several == nil && c.Several():
		return errors.New("a gateway of one cluster cannot become one of several without a restart")
	case s.several != nil && len(c.Clusters) == 0 && s.several.profiles == nil:
		return errors.New("no cluster is left; a gateway of several cannot become one of none, or of one by --kubeconfig, without a restart")
	}
	inForce, changed, waiting, err := s.source.current.Reload(c)
	if err != nil {
		return err
	}
	// Changes to the files from here on must be noticed, so the files are inspected before the new
	// clusters read them. The files of the old configuration were inspected when they were read.
	seen := s.source.look(inForce)
	for file := range seen {
		if before, known := s.source.seen[file]; known {
			seen[file] = before
		}
	}
	clusters, err := s.apply(ctx, inForce)
	if err != nil {
		return err
	}
	news := requested || s.source.rejected != "" || clusters.differs() || !reflect.DeepEqual(s.source.read, c)
	s.source.current, s.source.read, s.source.seen = inForce, c, seen
	if !news {
		return nil
	}
	s.source.metrics.succeeded(len(waiting))
	clusters.logMembers(s.log.With("settings", changed), "configuration reloaded")
	if len(waiting) > 0 {
		s.log.Warn("these settings need a restart, until then the old values are in force", "settings", waiting)
	}
	return nil
}

// apply serves by c, all of it or, on an error, nothing. The change is nil for one cluster.
func (s *Server) apply(ctx context.Context, c *config.Gateway) (clusters *change, err error) {
	if one, alone := s.served.(*cluster); alone {
		one.setPolicy(c)
	} else if clusters, err = s.reconcile(ctx, c, true); err != nil {
		return nil, err
	}
	if s.source.SetLogLevel != nil {
		s.source.SetLogLevel(c.Log.Level.Slog())
	}
	return clusters, nil
}

// reconcile has the clusters of c, and of the ClusterProfiles, be those that are served. The
// caller holds source.mu. reread tells that kubeconfigs are to be read again.
func (s *Server) reconcile(ctx context.Context, c *config.Gateway, reread bool) (*change, error) {
	s.several.changing.Lock()
	defer s.several.changing.Unlock()
	if err := s.several.ctx.Err(); err != nil {
		return nil, err // the process ends
	}
	list, err := s.several.wanted(c)
	if err != nil {
		return nil, err
	}
	plan, err := s.several.plan(list, reread)
	if err != nil {
		return nil, err
	}
	if err := s.cover(c, plan); err != nil {
		return nil, err
	}
	s.several.apply(ctx, plan, c)
	s.several.router.SetLimits(int64(c.AllClusters.MaxInFlight), int64(c.AllClusters.MaxWatches))
	return plan, nil
}

// cover makes the certificate good for c; if that cannot be, the plan is given up.
func (s *Server) cover(c *config.Gateway, plan *change) error {
	covered := false
	defer func() {
		if !covered { // an error, or a panic
			plan.discard()
		}
	}()
	err := s.source.cover(c)
	covered = err == nil
	return err
}
