package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/kubeweir/kubeweir/config"
)

// source is where the configuration of several clusters comes from.
type source struct {
	file      string
	providers string // file of the access providers of ClusterProfiles; "" for none
	load      func() (*config.Gateway, error)
	// cover makes the certificate that is served with good for a configuration.
	cover func(*config.Gateway) error
	// mu is held while the configuration is read and counts from then on; it guards what
	// follows. current is the one that counts, seen what its files looked like before they
	// were last read, and last what they did at the last look.
	mu         sync.Mutex
	current    *config.Gateway
	seen, last map[string]string
}

// lookPeriod is how often is looked whether a file of the configuration has changed. One
// that has is read at the next look, if it stayed as it is until then: what somebody still
// writes would be read as a configuration with fewer clusters.
const lookPeriod = time.Second

// FollowConfig has a gateway of several clusters serve those that the configuration names:
// load reads it again at SIGHUP, and when file or a kubeconfig that it names has changed. It
// is to be called before Start. A gateway of one cluster follows nothing.
func (s *Server) FollowConfig(file string, load func() (*config.Gateway, error)) {
	if s.several != nil {
		s.source.mu.Lock()
		defer s.source.mu.Unlock()
		// What the files were when they were first read nobody knows any more: they may have
		// been written since. As nothing is seen yet, the look after the next reads them again.
		s.source.file, s.source.load = file, load
	}
}

// look says what the files of a configuration look like, by their names.
func (c *source) look(of *config.Gateway) map[string]string {
	files := map[string]string{c.file: ""}
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
func (c *source) changed() bool {
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
	reloads := s.source.load != nil
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

// reload reads the configuration again: if it is asked for, or a file has changed. One that
// cannot be used is refused, and told of once.
func (s *Server) reload(ctx context.Context, asked bool) {
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	if !asked && !s.source.changed() {
		return
	}
	s.source.seen = s.source.look(s.source.current)
	err := s.panics.Func("background", func() error {
		c, err := s.source.load()
		if err != nil {
			return err
		}
		return s.become(ctx, c, asked)
	})()
	if err != nil {
		s.log.Error("configuration refused, the old one stays", "error", err)
	}
}

// Reload has a gateway of several clusters serve those of c, from now on: one that is the
// same as before is not touched, one that is not there any more ends, and so does one that
// changed when another has taken its place. On an error all stays as it is. It is not to be
// called before Start or after Close; settings of the process stay as they are.
func (s *Server) Reload(ctx context.Context, c *config.Gateway) error {
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	return s.become(ctx, c, true)
}

// become is Reload for who holds source.mu. Where nobody asked for it, it is told of only if
// something is other than before.
func (s *Server) become(ctx context.Context, c *config.Gateway, asked bool) error {
	switch {
	case s.several == nil:
		return errors.New("a gateway of one cluster cannot be changed while it runs")
	case len(c.Clusters) == 0 && s.several.profiles == nil:
		return errors.New("no cluster is left; a gateway of several cannot become one of none, or of one by --kubeconfig, without a restart")
	}
	old := s.source.current
	// What is written from here on is to be seen, so the files are looked at before the new
	// clusters read them; those that the old configuration has were when they were read.
	seen := s.source.look(c)
	for file := range seen {
		if before, known := s.source.seen[file]; known {
			seen[file] = before
		}
	}
	done, err := s.reconcile(ctx, c, true)
	if err != nil {
		return err
	}
	s.source.current = c
	s.source.seen = seen
	if !asked && !done.differs() && reflect.DeepEqual(old, c) {
		return nil
	}
	done.tell(s.log, "configuration read again")
	if waiting := s.started.ProcessChanges(c); len(waiting) > 0 {
		s.log.Warn("these settings are the process's and count after a restart", "settings", waiting)
	}
	return nil
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
