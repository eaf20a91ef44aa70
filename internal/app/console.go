package app

import (
	"cmp"
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
	"github.com/kubeweir/kubeweir/proxy/console"
)

// openConsole creates the console of the admin listener.
func (s *Server) openConsole() (err error) {
	o := console.Options{
		Mode: s.admin.mode, Version: s.admin.version,
		Actions: s.admin.console.Actions, TokenFile: s.admin.console.TokenFile,
		Process: s.registry, Clusters: s.consoleClusters, Blocked: s.blocked, Configuration: s.configuration,
		Audit: s.audit, Log: s.log, Panics: s.panics,
	}
	if a, ok := s.form.(*standalone); ok {
		if store, ok := a.engine.(*embedded.Engine); ok {
			o.Types = func() []console.StoreType { return typesOf(store, a.prefix) }
		}
	}
	s.console, err = console.New(o)
	return err
}

// configuration returns the settings in force.
func (s *Server) configuration() *console.Configuration {
	var settings []config.SettingInForce
	if s.admin.settings != nil {
		settings = s.admin.settings()
	} else {
		s.source.mu.Lock()
		settings = s.source.current.SettingsInForce()
		s.source.mu.Unlock()
	}
	document := &console.Configuration{
		Format: "yaml", Text: config.InForceText(settings, true), Settings: make([]console.Setting, 0, len(settings)),
		Note: "Files are named, not shown, and passwords in URLs are masked.",
	}
	for _, one := range settings {
		document.Settings = append(document.Settings, console.Setting{Path: one.Path, Value: one.Value, Default: one.Default, Flag: one.Flag, About: one.About})
	}
	return document
}

// consoleClusters returns what the console shows of each cluster.
func (s *Server) consoleClusters() (list []*console.Cluster) {
	for _, c := range s.served.clusters() {
		one := &console.Cluster{
			Name: c.name, Handler: c.handler, Metrics: c.gatherer, LastChange: c.changed.Load,
			Check: func(ctx context.Context, which func(schema.GroupVersionResource) bool) { c.manager.Check(ctx, which) },
		}
		if !c.inProcess {
			access, _ := c.client.ClientGo()
			one.Upstream = &console.Upstream{
				Server: config.MaskPasswords(access.Host), Reachable: c.client.Reachable,
				Version: func() string { return api.GitVersion(c.discovery.Documents().Version) },
			}
		}
		list = append(list, one)
	}
	return list
}

// storedAs maps resources to their directories in kube-apiserver's layout, where these have another
// name.
var storedAs = map[string]string{
	"minions": "nodes", "services/specs": "services", "services/endpoints": "endpoints", "controllers": "replicationcontrollers",
	"ingress": "ingresses", "podsecuritypolicy": "podsecuritypolicies",
}

// typesOf counts the objects of a store by their types.
func typesOf(store *embedded.Engine, prefix string) []console.StoreType {
	// Groups of custom resources have dots in their names.
	split := func(name string) bool { return name == "services" || strings.Contains(name, ".") }
	list := []console.StoreType{}
	for _, folder := range store.Folders(prefix+"/", split) {
		name := cmp.Or(storedAs[folder.Name], folder.Name)
		group, resource, grouped := strings.Cut(name, "/")
		if !grouped {
			group, resource = "", name
		}
		list = append(list, console.StoreType{Group: group, Resource: resource, Objects: folder.Keys})
	}
	return list
}
