package serve

import (
	"github.com/kubeweir/kubeweir/console"
	"github.com/kubeweir/kubeweir/console/web"
)

// openConsole makes the console of the admin listener.
func (s *Server) openConsole() (err error) {
	s.console, err = console.New(console.Options{
		Mode: s.admin.mode, Version: s.admin.version,
		Actions: s.admin.console.Actions, TokenFile: s.admin.console.TokenFile,
		Process: s.registry, Clusters: s.served.shown,
		Pages: web.Files(), Policy: web.Policy, Log: s.log, Panics: s.panics,
	})
	return err
}

// shown implements served.
func (c *cluster) shown() []*console.Cluster {
	return []*console.Cluster{{Name: c.name, Metrics: c.gatherer}}
}

// shown implements served.
func (s *clusters) shown() (list []*console.Cluster) {
	for _, m := range *s.members.Load() {
		list = append(list, m.cluster.shown()...)
	}
	return list
}
