package config

import (
	"errors"
	"io/fs"
	"os"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeweir/kubeweir/internal/clusterprofile"
)

// ClusterProfiles selects the ClusterProfile objects of a hub that are clusters, in addition to
// Gateway.Clusters.
type ClusterProfiles struct {
	ProviderFile  string `json:"providerFile"`
	Kubeconfig    string `json:"kubeconfig"`
	Context       string `json:"context"`
	Namespace     string `json:"namespace"`
	LabelSelector string `json:"labelSelector"`
	Max           int    `json:"max"`
}

// On reports whether ClusterProfiles are configured.
func (p *ClusterProfiles) On() bool { return p.ProviderFile != "" }

const profilesPath = "clusterProfiles"

// settings returns the settings of ClusterProfiles.
func (p *ClusterProfiles) settings() []setting {
	return []setting{
		{profilesPath + ".providerFile", "clusterprofile-provider-file", &p.ProviderFile, nil,
			"`file` with the exec plugins of access providers (KEP-5339); with it each ClusterProfile of a hub is a cluster, and the first listed plugin that the profile names provides credentials", ""},
		{profilesPath + ".kubeconfig", "clusterprofile-kubeconfig", &p.Kubeconfig, nil,
			"kubeconfig `file` with the hub of the ClusterProfiles and the gateway's credentials there; default: the service account of the pod", ""},
		{profilesPath + ".context", "clusterprofile-context", &p.Context, nil,
			"`name` of the context in the hub's kubeconfig; default: its current context", ""},
		{profilesPath + ".namespace", "clusterprofile-namespace", &p.Namespace, nil,
			"`namespace` of the ClusterProfiles; default: all, and then clusters are named NAMESPACE.NAME", ""},
		{profilesPath + ".labelSelector", "clusterprofile-selector", &p.LabelSelector, nil,
			"label `selector` for the ClusterProfiles; default: all", ""},
		{profilesPath + ".max", "clusterprofile-max", &p.Max, between(1, 1000),
			"maximum `number` of ClusterProfiles to serve; the youngest are ignored",
			"limits of memory and requests apply to each cluster separately"},
	}
}

// check reports errors in the settings of ClusterProfiles.
func (p *ClusterProfiles) check(o *origins) {
	if !p.On() {
		for _, s := range p.settings() {
			if text, ok := s.value.(*string); ok && *text != "" {
				o.report(s.path, "has no effect without %s; set that too", o.name(profilesPath+".providerFile"))
			}
		}
		return
	}
	if p.Namespace != "" && len(content.IsDNS1123Label(p.Namespace)) > 0 {
		o.report(profilesPath+".namespace", "must be the name of a namespace, not %q", short(p.Namespace))
	}
	if _, err := labels.Parse(p.LabelSelector); err != nil {
		o.report(profilesPath+".labelSelector", "must be a selector such as x-k8s.io/cluster-manager=fleet, not %q", short(p.LabelSelector))
	}
	if p.Kubeconfig == "" && p.Context != "" {
		o.report(profilesPath+".context", "chooses a context of a kubeconfig, and %s is not set", o.name(profilesPath+".kubeconfig"))
	}
	if o.elsewhere {
		return
	}
	if p.Kubeconfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		o.report(profilesPath+".kubeconfig", "is not set and this is not a pod; give the kubeconfig of the hub")
	}
	var missing *fs.PathError // which checkFiles reports
	if _, err := clusterprofile.LoadProviders(p.ProviderFile); err != nil && !errors.As(err, &missing) {
		o.report(profilesPath+".providerFile", "cannot be used: %w", err)
	}
}

// ProfiledCluster returns the configuration of a cluster that a ClusterProfile names: the top-level
// settings, except for its address and credentials.
func (g *Gateway) ProfiledCluster(name string) *Cluster {
	c := &Cluster{Name: name, PathPrefix: true, Gateway: *g}
	c.Clusters, c.Kubeconfig, c.Context, c.ClusterProfiles = nil, "", "", ClusterProfiles{}
	c.divideFolders(func(string) bool { return false })
	return c
}

// Several reports whether the gateway serves several clusters, or clusters that may be added while
// it runs.
func (g *Gateway) Several() bool { return len(g.Clusters) > 0 || g.ClusterProfiles.On() }
