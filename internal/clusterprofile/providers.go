package clusterprofile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// Providers are the access providers by which clusters can be reached, the preferred one first. They come from a file as
// other consumers of ClusterProfiles have it (--clusterprofile-provider-file).
type Providers struct{ list []provider }

// provider gets credentials for the clusters that name it.
type provider struct {
	Name       string                  `json:"name"`
	ExecConfig *clientcmdv1.ExecConfig `json:"execConfig"`
	// Args and Env are the policies for the arguments and environment variables that a profile
	// requests for the plugin.
	Args argsPolicy `json:"profileSourcedCLIArgsPolicy"`
	Env  envPolicy  `json:"profileSourcedEnvVarsPolicy"`
}

type (
	argsPolicy string
	envPolicy  string
)

const (
	argsIgnore argsPolicy = "Ignore"
	argsAppend argsPolicy = "Append"

	envIgnore            envPolicy = "Ignore"
	envAppendIfNotExists envPolicy = "AppendIfNotExists"
	envReplace           envPolicy = "Replace"
)

// The extensions of a cluster that KEP-5339 knows.
const (
	argsExtension = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args"
	envExtension  = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs"
	execExtension = "client.authentication.k8s.io/exec" // is for the plugin
)

// LoadProviders reads the file of the access providers.
func LoadProviders(file string) (*Providers, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p, err := parseProviders(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

func parseProviders(text []byte) (*Providers, error) {
	var content struct {
		Providers []provider `json:"providers"`
	}
	if err := yaml.UnmarshalStrict(text, &content); err != nil {
		if _, field, ok := strings.Cut(err.Error(), "unknown field "); ok {
			return nil, fmt.Errorf("has a field %s, which is not known here", field)
		}
		return nil, errors.New(`is no file of access providers, such as {"providers": [{"name": ..., "execConfig": {...}}]}`)
	}
	if len(content.Providers) == 0 {
		return nil, errors.New("has no providers")
	}
	names := make(map[string]bool)
	for i := range content.Providers {
		p := &content.Providers[i]
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("providers[%d] %w", i, err)
		}
		if names[p.Name] {
			return nil, fmt.Errorf("providers[%d] has the name %q, as another has", i, p.Name)
		}
		names[p.Name] = true
	}
	return &Providers{content.Providers}, nil
}

func (p *provider) check() error {
	switch {
	case p.Name == "":
		return errors.New("has no name")
	case p.ExecConfig == nil || p.ExecConfig.Command == "":
		return errors.New("has no execConfig.command")
	case p.ExecConfig.APIVersion == "":
		return errors.New("has no execConfig.apiVersion, such as client.authentication.k8s.io/v1")
	case !slices.Contains([]argsPolicy{"", argsIgnore, argsAppend}, p.Args):
		return fmt.Errorf("has profileSourcedCLIArgsPolicy %q; there are %s and %s", p.Args, argsIgnore, argsAppend)
	case !slices.Contains([]envPolicy{"", envIgnore, envAppendIfNotExists, envReplace}, p.Env):
		return fmt.Errorf("has profileSourcedEnvVarsPolicy %q; there are %s, %s and %s", p.Env, envIgnore, envAppendIfNotExists, envReplace)
	}
	return nil
}

// Kubeconfig is how the cluster of a profile is reached: by the first of the providers that it names.
func (p *Providers) Kubeconfig(profile *Profile) (*clientcmdapi.Config, error) {
	if profile.Error != "" {
		return nil, errors.New(profile.Error)
	}
	for i := range p.list {
		if a := profile.by(p.list[i].Name); a != nil {
			out, err := p.list[i].kubeconfig(&a.Cluster)
			if err != nil {
				return nil, fmt.Errorf("access provider %s: %w", a.Name, err)
			}
			return out, nil
		}
	}
	if len(profile.Access) == 0 {
		return nil, errors.New("it names no access provider yet")
	}
	names := make([]string, len(profile.Access))
	for i := range profile.Access {
		names[i] = profile.Access[i].Name
	}
	return nil, fmt.Errorf("the provider file has none of its access providers, %s", short(strings.Join(names, ", ")))
}

// short is what somebody wrote in a line of the log.
func short(text string) string {
	const most = 200
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

func (p *provider) kubeconfig(at *clientcmdv1.Cluster) (*clientcmdapi.Config, error) {
	if err := checkCluster(at); err != nil {
		return nil, err
	}
	exec, err := p.exec(at)
	if err != nil {
		return nil, err
	}
	cluster := &clientcmdapi.Cluster{
		Server: at.Server, TLSServerName: at.TLSServerName, CertificateAuthorityData: at.CertificateAuthorityData, ProxyURL: at.ProxyURL,
	}
	if own := extension(at, execExtension); own != nil {
		cluster.Extensions = map[string]runtime.Object{execExtension: &runtime.Unknown{Raw: own, ContentType: runtime.ContentTypeJSON}}
	}
	const name = "cluster"
	out := clientcmdapi.NewConfig()
	out.Clusters[name], out.AuthInfos[name] = cluster, &clientcmdapi.AuthInfo{Exec: exec}
	out.Contexts[name], out.CurrentContext = &clientcmdapi.Context{Cluster: name, AuthInfo: name}, name
	return out, nil
}

// checkCluster refuses what would send credentials to whom nobody vouches for, or read a file that a profile names.
func checkCluster(at *clientcmdv1.Cluster) error {
	switch server, err := url.Parse(at.Server); {
	case at.Server == "":
		return errors.New("it has no server")
	case err != nil || server.Scheme != "https" || server.Hostname() == "" || server.User != nil || server.RawQuery != "" || server.Fragment != "":
		return fmt.Errorf("its server must be an address such as https://host:6443, not %q", short(at.Server))
	case at.InsecureSkipTLSVerify:
		return errors.New("it has insecure-skip-tls-verify, and credentials are sent to no server that is not verified")
	case at.CertificateAuthority != "" && len(at.CertificateAuthorityData) == 0:
		return errors.New("it has its CA in a file (certificate-authority) of another machine; it must have certificate-authority-data")
	}
	return nil
}

// exec is the plugin, as the profile wants it as far as that may.
func (p *provider) exec(at *clientcmdv1.Cluster) (*clientcmdapi.ExecConfig, error) {
	out := &clientcmdapi.ExecConfig{
		APIVersion: p.ExecConfig.APIVersion, Command: p.ExecConfig.Command, Args: slices.Clone(p.ExecConfig.Args),
		InstallHint: p.ExecConfig.InstallHint, ProvideClusterInfo: p.ExecConfig.ProvideClusterInfo,
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
	if more := extension(at, argsExtension); more != nil && p.Args == argsAppend {
		var args []string
		if err := json.Unmarshal(more, &args); err != nil {
			return nil, fmt.Errorf("its extension %s must be a list of strings", argsExtension)
		}
		out.Args = append(out.Args, args...)
	}
	env := make(map[string]string)
	for _, v := range p.ExecConfig.Env {
		env[v.Name] = v.Value
	}
	if more := extension(at, envExtension); more != nil && (p.Env == envAppendIfNotExists || p.Env == envReplace) {
		var vars map[string]string
		if err := json.Unmarshal(more, &vars); err != nil {
			return nil, fmt.Errorf("its extension %s must be names of variables with their values", envExtension)
		}
		for name, value := range vars {
			if name == "" || strings.ContainsAny(name, "=\x00") { // what is before the first = would be set, whatever the policy
				return nil, fmt.Errorf("its extension %s has a variable %q, which is no name", envExtension, short(name))
			}
			if _, there := env[name]; !there || p.Env == envReplace {
				env[name] = value
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out.Env = append(out.Env, clientcmdapi.ExecEnvVar{Name: name, Value: env[name]})
	}
	return out, nil
}

func extension(at *clientcmdv1.Cluster, name string) []byte {
	for i := range at.Extensions {
		if at.Extensions[i].Name == name {
			return at.Extensions[i].Extension.Raw
		}
	}
	return nil
}
