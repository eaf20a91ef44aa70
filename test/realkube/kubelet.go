package realkube

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s.io/client-go/tools/clientcmd"
)

// KubeletOptions configure a kubelet.
type KubeletOptions struct {
	// Runtime is the CRI endpoint, unix:///...
	Runtime string
	// Dir holds logs, volumes and other files of the node.
	Dir string
}

// NodeName is the name of a kubelet's node. It is also its address: a kubelet accepts a loopback
// address only in this way.
const NodeName = "127.0.0.1"

// kubeletPort and kubeletHealthPort are the default ports: each kubelet runs in a network namespace
// of its own.
const kubeletPort, kubeletHealthPort = 10250, 10248

// A Kubelet is a running, unmodified kubelet.
type Kubelet struct{ process *process }

// BuildKubelet returns the path of the kubelet, built as in Binaries.
func BuildKubelet(ctx context.Context) (string, error) {
	dir, err := buildModules(ctx, "kubelet", []string{"kubelet"}, func(root, dir, ldflags string) error {
		return goBuild(ctx, root, dir, ldflags, "k8s.io/kubernetes/cmd/kubelet")
	})
	return filepath.Join(dir, "kubelet"), err
}

// StartKubelet starts a kubelet as the node NodeName of a cluster with nodes, and returns when it
// is healthy. It needs root and mounts file systems, so it must run in a private mount namespace.
// It leaves control groups alone.
func StartKubelet(ctx context.Context, c *Cluster, opts KubeletOptions) (*Kubelet, error) {
	path, err := BuildKubelet(ctx)
	if err != nil {
		return nil, err
	}
	client, err := c.IssueClientCert("system:node:"+NodeName, "system:nodes")
	if err != nil {
		return nil, err
	}
	serving, err := c.IssueServingCert(NodeName)
	if err != nil {
		return nil, err
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: c.URL(), CertificateAuthority: c.ServingCAFile()}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificate: client.CertFile, ClientKey: client.KeyFile}
	kubeconfig.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*kubeconfig, filepath.Join(opts.Dir, "kubeconfig")); err != nil {
		return nil, err
	}
	config := fmt.Sprintf(kubeletConfig, c.ClientCAFile(), serving.CertFile, serving.KeyFile, opts.Runtime, filepath.Join(opts.Dir, "plugins"),
		kubeletPort, kubeletHealthPort)
	configFile := filepath.Join(opts.Dir, "config.yaml")
	if err := os.WriteFile(configFile, []byte(config), 0o600); err != nil {
		return nil, err
	}
	k := &Kubelet{}
	if k.process, err = startProcess("kubelet", filepath.Join(opts.Dir, "kubelet.log"), path, "--config", configFile,
		"--kubeconfig", filepath.Join(opts.Dir, "kubeconfig"), "--hostname-override", NodeName,
		"--root-dir", filepath.Join(opts.Dir, "root"), "--cert-dir", filepath.Join(opts.Dir, "certs")); err != nil {
		return nil, err
	}
	if err := k.process.await(ctx, healthy); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

func healthy(ctx context.Context) (bool, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", kubeletHealthPort), nil)
	if err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, err
	}
	return resp.StatusCode == http.StatusOK, resp.Body.Close()
}

// kubeletConfig differs from that of a usual node: the kubelet leaves control groups, iptables and
// kernel settings alone, evicts nothing when the disk is full, and restarts crashed containers
// within a second.
const kubeletConfig = `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %q}}
authorization: {mode: Webhook}
tlsCertFile: %q
tlsPrivateKeyFile: %q
containerRuntimeEndpoint: %q
volumePluginDir: %q
address: 127.0.0.1
port: %d
healthzPort: %d
cgroupsPerQOS: false
enforceNodeAllocatable: [none]
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
clusterDNS: [127.96.0.10] # where nobody listens
resolvConf: ""
evictionHard: {memory.available: "0%%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
syncFrequency: 10s
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
featureGates: {KubeletCrashLoopBackOffMax: true}
`

// Log returns the kubelet's output.
func (k *Kubelet) Log() string { return string(k.process.log()) }

// Close kills the kubelet. Its containers keep running.
func (k *Kubelet) Close() { k.process.kill() }
