package clusterprofile

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

func profile(t *testing.T, text string) *Profile {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	p := read(u)
	return &p
}

const twoProviders = `{"providers": [
	{"name": "first", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "login", "args": ["a"],
		"env": [{"name": "OWN", "value": "1"}], "provideClusterInfo": true},
		"profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "AppendIfNotExists"},
	{"name": "second", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "other", "args": null, "env": null}}
]}`

func providers(t *testing.T) *Providers {
	t.Helper()
	p, err := parseProviders([]byte(twoProviders))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestKubeconfig: of a profile is made what the KEP says.
func TestKubeconfig(t *testing.T) {
	p := profile(t, `
metadata: {name: berlin, namespace: fleet}
spec: {clusterManager: {name: any}}
status:
  credentialProviders:
  - {name: first, cluster: {server: "https://old:6443"}}
  - {name: only, cluster: {server: "https://only:6443"}}
  accessProviders:
  - {name: second, cluster: {server: "https://second:6443"}}
  - name: first
    cluster:
      server: https://first:6443/prefix
      certificate-authority-data: Q0E=
      tls-server-name: api.berlin
      proxy-url: http://proxy:3128
      extensions:
      - {name: client.authentication.k8s.io/exec, extension: {clusterName: berlin}}
      - {name: clusterprofiles.multicluster.x-k8s.io/exec/additional-args, extension: [b, c]}
      - {name: clusterprofiles.multicluster.x-k8s.io/exec/additional-envs, extension: {OWN: "2", MORE: "3"}}
`)
	cfg, err := providers(t).Kubeconfig(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := clientcmd.NewNonInteractiveClientConfig(*cfg, "", &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	if got.Host != "https://first:6443/prefix" || string(got.CAData) != "CA" || got.ServerName != "api.berlin" || got.Proxy == nil {
		t.Errorf("%+v", got)
	}
	exec := got.ExecProvider
	if exec.Command != "login" || !exec.ProvideClusterInfo || exec.InteractiveMode != clientcmdapi.NeverExecInteractiveMode ||
		!reflect.DeepEqual(exec.Args, []string{"a", "b", "c"}) || !reflect.DeepEqual(exec.Env, []clientcmdapi.ExecEnvVar{{Name: "MORE", Value: "3"}, {Name: "OWN", Value: "1"}}) {
		t.Errorf("%+v", exec)
	}
	if own, ok := exec.Config.(*runtime.Unknown); !ok || !json.Valid(own.Raw) || !strings.Contains(string(own.Raw), `"berlin"`) {
		t.Errorf("%+v", exec.Config)
	}
	if p.ClusterName(true) != "berlin" || p.ClusterName(false) != "fleet.berlin" {
		t.Errorf("%s, %s", p.ClusterName(true), p.ClusterName(false))
	}
	// A provider that may not add arguments; one that only the field of before has.
	p = profile(t, `{status: {credentialProviders: [{name: second, cluster: {server: "https://second:6443", extensions: [{name: clusterprofiles.multicluster.x-k8s.io/exec/additional-args, extension: [b]}]}}]}}`)
	if cfg, err = providers(t).Kubeconfig(p); err != nil || cfg.AuthInfos["cluster"].Exec.Args != nil || cfg.Clusters["cluster"].Server != "https://second:6443" {
		t.Errorf("%+v, %v", cfg, err)
	}
}

// TestKubeconfigRejected: what is wrong with a profile is one sentence.
func TestKubeconfigRejected(t *testing.T) {
	for want, text := range map[string]string{
		"it names no access provider yet":                       `{}`,
		"none of its access providers, a, b":                    `{status: {accessProviders: [{name: a, cluster: {server: "https://a"}}, {name: b}]}}`,
		"access provider first: it has no server":               `{status: {accessProviders: [{name: first}]}}`,
		"https://host:6443, not \"http://a\"":                   `{status: {accessProviders: [{name: first, cluster: {server: "http://a"}}]}}`,
		"not \"a:6443\"":                                        `{status: {accessProviders: [{name: first, cluster: {server: "a:6443"}}]}}`,
		"credentials are sent to no server that is not":         `{status: {accessProviders: [{name: first, cluster: {server: "https://a", insecure-skip-tls-verify: true}}]}}`,
		"it must have certificate-authority-data":               `{status: {accessProviders: [{name: first, cluster: {server: "https://a", certificate-authority: /etc/ca.crt}}]}}`,
		"its status cannot be read: json: cannot unmarshal num": `{status: {accessProviders: [{name: 7}]}}`,
		"not \"https://:6443\"":                                 `{status: {accessProviders: [{name: first, cluster: {server: "https://:6443"}}]}}`,
		"not \"https://a:b@host\"":                              `{status: {accessProviders: [{name: first, cluster: {server: "https://a:b@host"}}]}}`,
		"not \"https://host?a\"":                                `{status: {accessProviders: [{name: first, cluster: {server: "https://host?a"}}]}}`,
		"a variable \"OWN=2\", which is no name":                `{status: {accessProviders: [{name: first, cluster: {server: "https://a", extensions: [{name: clusterprofiles.multicluster.x-k8s.io/exec/additional-envs, extension: {OWN=2: ""}}]}}]}}`,
		"its access providers have more than 131072 bytes":      `{status: {accessProviders: [{name: first, cluster: {server: "https://` + strings.Repeat("a", maxAccess) + `"}}]}}`,
		"additional-args must be a list of strings":             `{status: {accessProviders: [{name: first, cluster: {server: "https://a", extensions: [{name: clusterprofiles.multicluster.x-k8s.io/exec/additional-args, extension: {a: b}}]}}]}}`,
		"additional-envs must be names of variables":            `{status: {accessProviders: [{name: first, cluster: {server: "https://a", extensions: [{name: clusterprofiles.multicluster.x-k8s.io/exec/additional-envs, extension: [a]}]}}]}}`,
	} {
		if _, err := providers(t).Kubeconfig(profile(t, text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestProvidersRejected: so is what is wrong with the file of the providers.
func TestProvidersRejected(t *testing.T) {
	for want, text := range map[string]string{
		"has no providers":                     `{}`,
		"is no file of access providers":       `[`,
		"has a field \"exec\", which is":       `{providers: [{name: a, exec: {}}]}`,
		"providers[0] has no name":             `{providers: [{execConfig: {command: a}}]}`,
		"providers[0] has no execConfig.comm":  `{providers: [{name: a}]}`,
		"providers[0] has no execConfig.apiV":  `{providers: [{name: a, execConfig: {command: a}}]}`,
		"providers[1] has the name \"a\"":      `{providers: [{name: a, execConfig: {command: a, apiVersion: v}}, {name: a, execConfig: {command: a, apiVersion: v}}]}`,
		"there are Ignore and Append":          `{providers: [{name: a, execConfig: {command: a, apiVersion: v}, profileSourcedCLIArgsPolicy: Replace}]}`,
		"Ignore, AppendIfNotExists and Replac": `{providers: [{name: a, execConfig: {command: a, apiVersion: v}, profileSourcedEnvVarsPolicy: Append}]}`,
	} {
		if _, err := parseProviders([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestKubeconfigOfAnything: whatever is in the extension for the plugin, it is written, for that tells whether it has changed.
func TestKubeconfigOfAnything(t *testing.T) {
	for _, extension := range []string{"null", "7", "[[[]]]", "{}", "text", "{a: {b: [null]}}"} {
		p := profile(t, `{status: {accessProviders: [{name: first, cluster: {server: "https://a", extensions: [{name: client.authentication.k8s.io/exec, extension: `+extension+`}]}}]}}`)
		cfg, err := providers(t).Kubeconfig(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := clientcmd.Write(*cfg); err != nil {
			t.Errorf("%s: %v", extension, err)
		}
		if _, err := clientcmd.NewNonInteractiveClientConfig(*cfg, "", &clientcmd.ConfigOverrides{}, nil).ClientConfig(); err != nil {
			t.Errorf("%s: %v", extension, err)
		}
	}
}
