package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/kubeweir/kubeweir/internal/apiservers"
)

// Cluster is one of several clusters that a gateway serves.
type Cluster struct {
	// Name identifies the cluster in paths, metrics, logs and audit events. Required.
	Name string `json:"name"`
	// Hosts are the host names, without port, by which clients select this cluster.
	Hosts []string `json:"hosts"`
	// PathPrefix also serves the cluster below /clusters/NAME.
	PathPrefix bool `json:"pathPrefix"`

	// Gateway is the configuration of a gateway that serves only this cluster: the top-level
	// settings, with those of the cluster in place of them.
	Gateway
}

// Settings of clusters.
const (
	clustersPath = "clusters"
	// ClusterPathPrefix precedes the name of a cluster in a path.
	ClusterPathPrefix = "/clusters/"
)

// clustersExample is an example for configuration files.
const clustersExample = `
# Reachable at /clusters/berlin, and by its own host name.
- name: berlin
  hosts: [berlin.k8s.example.com]
  kubeconfig: berlin.kubeconfig
# Top-level settings such as authentication, limits and consistency apply to each cluster,
# unless it overrides them.
- name: lab
  kubeconfig: /home/me/.kube/config
  context: lab
  consistency:
    default: session
`

// processPaths are the settings, and groups of settings, that exist once per process. A cluster may
// override all others.
var processPaths = []string{
	"listen", "insecureListen", "sidecarHosts", "adminListen", "profiling", "console", "certDir", "serviceAccountDir", "tls",
	"limits.maxConnections", "limits.maxStreams", "limits.maxHeaderBytes", "allClusters", clustersPath, profilesPath,
	"timeouts.handshake", "timeouts.readHeader", "timeouts.idle", "timeouts.bodyIdle", "timeouts.write", "timeouts.ping", "timeouts.pingAnswer",
	"audit", "tracing", "log", "shutdown",
}

// dividedPaths are folders that clusters cannot share.
var dividedPaths = []string{"state.dir"}

// divideFolders appends the name of the cluster to each of dividedPaths that it inherits from the
// top level.
func (c *Cluster) divideFolders(own func(path string) bool) {
	for _, s := range c.program().settings() {
		if !slices.Contains(dividedPaths, s.path) || own(s.path) {
			continue
		}
		if folder := s.value.(*string); *folder != "" {
			*folder = filepath.Join(*folder, c.Name)
		}
	}
}

// OfProcess reports whether a setting or group of settings exists once per process, so that
// clusters cannot override it.
func OfProcess(path string) bool {
	return slices.ContainsFunc(processPaths, func(p string) bool { return path == p || strings.HasPrefix(path, p+".") })
}

// expand sets the values that depend on other settings: the clusters and the defaults of the
// profile.
func (g *Gateway) expand(r *fileReader, isSet func(path string) bool) {
	if r != nil {
		g.readClusters(r, isSet)
	}
	g.applyProfile(isSet)
}

// readClusters sets the clusters of the file. Each starts as a copy of the rest of g, so all other
// settings must be set before.
func (g *Gateway) readClusters(r *fileReader, isSet func(path string) bool) {
	n := r.clusters
	if n == nil {
		return
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.SequenceNode {
		r.report(n.Line, "%s must be a list, not %s", clustersPath, describe(n, false))
		return
	}
	for i, item := range n.Content {
		c := Cluster{PathPrefix: true, Gateway: *g}
		c.Clusters = nil
		path := fmt.Sprintf("%s[%d]", clustersPath, i)
		r.decode(item, reflect.ValueOf(&c).Elem(), path)
		r.resolvePaths(c.program(), path+".")
		own := func(setting string) bool { _, own := r.lines[path+"."+setting]; return own }
		c.divideFolders(own)
		c.applyProfile(func(setting string) bool { return own(setting) || isSet(setting) })
		for _, setting := range processPaths {
			if line, set := r.lines[path+"."+setting]; set {
				r.report(line, "%s.%s is the same for all clusters; set it at the top level", path, setting)
			}
		}
		g.Clusters = append(g.Clusters, c)
	}
}

// checkClusters reports errors in the list and in the settings of each cluster.
func (g *Gateway) checkClusters(o *origins) {
	g.ClusterProfiles.check(o)
	if !g.Several() {
		return
	}
	if g.ServiceAccountDir != "" {
		o.report("serviceAccountDir", "cannot be used with several clusters: who finds the API by a service account names none")
	}
	if list, _, err := apiservers.Parse(g.UpstreamServers); err == nil && list.Several() && !list.Slices {
		o.report("upstreamServers", "are those of one cluster; say them of that one, in %s", clustersPath)
	}
	if len(g.Clusters) == 0 && g.Kubeconfig != "" {
		o.report("kubeconfig", "is of one cluster; say that of the hub in %s, and that of a cluster in %s", o.name(profilesPath+".kubeconfig"), clustersPath)
	}
	names, hosts := make(map[string]string), make(map[string]string)
	sound := len(o.errs) == 0
	for i := range g.Clusters {
		c, path := &g.Clusters[i], fmt.Sprintf("%s[%d]", clustersPath, i)
		c.checkName(o, path, names)
		c.checkHosts(o, path, hosts)
		within := &origins{flags: o.flags, given: o.given, file: o.file, elsewhere: o.elsewhere, alone: o.alone, cluster: path, inherits: sound}
		c.checkOwn(within)
		for _, err := range within.errs {
			o.add(err)
		}
	}
}

func (c *Cluster) checkName(o *origins, path string, names map[string]string) {
	switch other, taken := names[c.Name]; {
	case c.Name == "":
		o.report(path, "has no name; add one, such as name: berlin")
	case len(content.IsDNS1123Label(c.Name)) > 0:
		o.report(path+".name", "must be at most 63 lowercase letters, digits and '-', not %q", short(c.Name))
	case taken:
		o.report(path+".name", "is %s, as %s.name is; give each cluster its own", c.Name, other)
	}
	names[c.Name] = path
}

func (c *Cluster) checkHosts(o *origins, path string, hosts map[string]string) {
	if len(c.Hosts) == 0 && !c.PathPrefix {
		o.report(path, "cannot be reached; give it hosts, or leave out pathPrefix: false")
	}
	for i, host := range c.Hosts {
		at := fmt.Sprintf("%s.hosts[%d]", path, i)
		switch other, taken := hosts[host]; {
		case len(content.IsDNS1123Subdomain(host)) > 0:
			o.report(at, "must be a host name of lowercase letters, digits, '-' and '.', without port, not %q", short(host))
		case taken:
			o.report(at, "is %s, as %s is; give each cluster its own", host, other)
		}
		hosts[host] = at
	}
}

// checkOwn reports errors in the settings of one cluster.
func (c *Cluster) checkOwn(o *origins) {
	settings := slices.DeleteFunc(c.program().settings(), func(s setting) bool { return OfProcess(s.path) })
	for _, s := range settings {
		s.check(o)
	}
	checkFiles(o, settings)
	c.checkUpstream(o)
}

// Same reports whether a cluster is reached, trusted and cached in the same way as another. Host
// names and settings that can change at run time may differ.
func (c *Cluster) Same(other *Cluster) bool {
	return c.Name == other.Name && !slices.ContainsFunc(changed(&c.Gateway, &other.Gateway, false), func(path string) bool { return !Live(path) })
}

// changed returns the paths of the settings that differ, either those of the process or those of a
// cluster.
func changed(a, b *Gateway, process bool) (paths []string) {
	theirs := b.program().settings()
	for i, s := range a.program().settings() {
		if s.path != clustersPath && OfProcess(s.path) == process && !reflect.DeepEqual(s.value, theirs[i].value) {
			paths = append(paths, s.path)
		}
	}
	return paths
}
