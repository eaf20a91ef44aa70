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

// Cluster is one of several clusters that a gateway stands in front of.
type Cluster struct {
	// Name identifies the cluster in paths, metrics, logs and audit events. Required.
	Name string `json:"name"`
	// Hosts are the names, without port, by which clients ask for this cluster.
	Hosts []string `json:"hosts"`
	// PathPrefix serves it below /clusters/ and its name, too.
	PathPrefix bool `json:"pathPrefix"`

	// Gateway is what a gateway in front of this cluster alone would be told: the
	// settings of the top level, but what the cluster has of its own.
	Gateway
}

// Settings of clusters.
const (
	clustersPath = "clusters"
	// ClusterPathPrefix is what the name of a cluster stands behind in a path.
	ClusterPathPrefix = "/clusters/"
)

// clustersExample are clusters for a file.
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

// processPaths are the settings, and groups of settings, that the process has one time for
// all clusters. All others a cluster may have of its own.
var processPaths = []string{
	"listen", "insecureListen", "sidecarHosts", "adminListen", "profiling", "console", "certDir", "serviceAccountDir", "tls",
	"limits.maxConnections", "limits.maxStreams", "limits.maxHeaderBytes", "allClusters", clustersPath, profilesPath,
	"timeouts.handshake", "timeouts.readHeader", "timeouts.idle", "timeouts.bodyIdle", "timeouts.write", "timeouts.ping", "timeouts.pingAnswer",
	"audit", "log", "shutdown",
}

// dividedPaths are folders that clusters cannot share.
var dividedPaths = []string{"state.dir"}

// divideFolders gives the cluster a folder of its own, of its name, in each of those that it
// has from the top level.
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

// OfProcess reports whether a setting, or a whole group of them, is the process's: no cluster
// has it of its own.
func OfProcess(path string) bool {
	return slices.ContainsFunc(processPaths, func(p string) bool { return path == p || strings.HasPrefix(path, p+".") })
}

// expand sets what builds on all that was said: the clusters, and what the profile has other
// defaults for.
func (g *Gateway) expand(r *fileReader, isSet func(path string) bool) {
	if r != nil {
		g.readClusters(r, isSet)
	}
	g.applyProfile(isSet)
}

// readClusters sets the clusters that the file has: each is a copy of the rest of g, with
// what it says instead. So it is to be called when all else is set.
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

// checkClusters reports what is wrong with the list, and with what each cluster has of its own.
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

// checkOwn reports what is wrong with the settings of one cluster.
func (c *Cluster) checkOwn(o *origins) {
	settings := slices.DeleteFunc(c.program().settings(), func(s setting) bool { return OfProcess(s.path) })
	for _, s := range settings {
		s.check(o)
	}
	checkFiles(o, settings)
	c.checkUpstream(o)
}

// Same reports whether a cluster is reached, trusted and cached in the same way as another:
// by which names it is asked for may differ, and live settings.
func (c *Cluster) Same(other *Cluster) bool {
	return c.Name == other.Name && !slices.ContainsFunc(changed(&c.Gateway, &other.Gateway, false), func(path string) bool { return !Live(path) })
}

// changed are the paths of the settings that differ, of the process or of a cluster.
func changed(a, b *Gateway, process bool) (paths []string) {
	theirs := b.program().settings()
	for i, s := range a.program().settings() {
		if s.path != clustersPath && OfProcess(s.path) == process && !reflect.DeepEqual(s.value, theirs[i].value) {
			paths = append(paths, s.path)
		}
	}
	return paths
}
