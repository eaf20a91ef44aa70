package realkube

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// URL returns kube-apiserver's address, for example https://127.0.0.1:20123. It does not change on
// restarts.
func (c *Cluster) URL() string { return "https://" + c.apiPort.addr() }

// Token returns the bearer token of a user in the token file, or "" if the user is unknown.
func (c *Cluster) Token(user string) string { return c.users[user].Token }

// AdminToken returns a bearer token of group system:masters.
func (c *Cluster) AdminToken() string { return c.Token(Admin) }

// AdminConfig returns a client configuration of group system:masters, without client-side rate
// limits.
func (c *Cluster) AdminConfig() *rest.Config { return c.ConfigFor(c.AdminToken()) }

// ConfigFor returns a client configuration with a bearer token, without client-side rate limits.
func (c *Cluster) ConfigFor(token string) *rest.Config {
	return &rest.Config{
		Host:            c.URL(),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.ServingCAFile()},
		QPS:             -1,
	}
}

// ConfigForCert returns a client configuration with a client certificate, without client-side rate
// limits.
func (c *Cluster) ConfigForCert(k KeyPair) *rest.Config {
	cfg := c.ConfigFor("")
	cfg.CertFile, cfg.KeyFile = k.CertFile, k.KeyFile
	return cfg
}

// ServingCAFile returns the path of the CA of kube-apiserver's serving certificate and of
// IssueServingCert.
func (c *Cluster) ServingCAFile() string { return c.pki.serving.pair.CertFile }

// ServingCAs returns a new pool with the CA of ServingCAFile, for clients that do not use
// rest.Config.
func (c *Cluster) ServingCAs() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.pki.serving.cert)
	return pool
}

// ClientCAFile returns the path of the CA of client certificates (--client-ca-file).
func (c *Cluster) ClientCAFile() string { return c.pki.client.pair.CertFile }

// ServiceAccountKeyFile returns the path of the key that signs service account tokens.
func (c *Cluster) ServiceAccountKeyFile() string { return c.pki.serviceAccount.KeyFile }

// FrontProxyCAFile returns the path of the CA of front-proxy certificates
// (--requestheader-client-ca-file).
func (c *Cluster) FrontProxyCAFile() string { return c.pki.frontProxy.pair.CertFile }

// FrontProxyName returns the only common name of a front-proxy certificate that may send X-Remote-*
// headers.
func (c *Cluster) FrontProxyName() string { return frontProxyName }

// IssueClientCert issues a certificate that authenticates the given user in the given groups.
func (c *Cluster) IssueClientCert(user string, groups ...string) (KeyPair, error) {
	return c.pki.client.issueClient(c.pkiDir(), c.certFile("client"), user, groups...)
}

// IssueFrontProxyCert issues a certificate whose holder may name users in X-Remote-* headers.
func (c *Cluster) IssueFrontProxyCert() (KeyPair, error) {
	return c.IssueFrontProxyCertFor(frontProxyName)
}

// IssueFrontProxyCertFor issues a certificate of the front-proxy CA with any common name.
// kube-apiserver ignores X-Remote-* headers if the name is not allowed.
func (c *Cluster) IssueFrontProxyCertFor(commonName string) (KeyPair, error) {
	return c.pki.frontProxy.issueClient(c.pkiDir(), c.certFile("front-proxy"), commonName)
}

// IssueServingCert issues a serving certificate that clients of this cluster trust, for example for
// a gateway.
func (c *Cluster) IssueServingCert(hosts ...string) (KeyPair, error) {
	return c.pki.serving.issueServer(c.pkiDir(), c.certFile("serving"), hosts...)
}

func (c *Cluster) pkiDir() string { return filepath.Join(c.dir, "pki") }

func (c *Cluster) certFile(kind string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.certs++
	return fmt.Sprintf("%s-%d", kind, c.mu.certs)
}

// WriteKubeconfig writes a kubeconfig with mode 0600 for one server and one bearer token.
func (c *Cluster) WriteKubeconfig(path, serverURL, caFile, token string) error {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["realkube"] = &clientcmdapi.Cluster{Server: serverURL, CertificateAuthority: caFile}
	cfg.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: token}
	cfg.Contexts["realkube"] = &clientcmdapi.Context{Cluster: "realkube", AuthInfo: "user", Namespace: "default"}
	cfg.CurrentContext = "realkube"
	return clientcmd.WriteToFile(*cfg, path)
}

// writeKubeconfig writes the file with which kube-apiserver reaches the webhook.
func (w *Webhook) writeKubeconfig(path string) error {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["webhook"] = &clientcmdapi.Cluster{Server: w.URL, CertificateAuthorityData: w.CA}
	cfg.AuthInfos["kube-apiserver"] = &clientcmdapi.AuthInfo{}
	cfg.Contexts["webhook"] = &clientcmdapi.Context{Cluster: "webhook", AuthInfo: "kube-apiserver"}
	cfg.CurrentContext = "webhook"
	return clientcmd.WriteToFile(*cfg, path)
}

// Kubectl runs kubectl with a kubeconfig and returns its standard output. The error contains its
// standard error.
func (c *Cluster) Kubectl(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.paths.Kubectl, append([]string{"--kubeconfig", kubeconfig}, args...)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	// kubectl caches discovery below HOME by host and port, and ports are reused.
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(c.dir, "kubectl-cache"))
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %q: %w: %s", args, err, errOut.Bytes())
	}
	return out.String(), nil
}
