package realkube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
)

func (c *Cluster) startFirstAPIServer(ctx context.Context) error {
	for try := 1; ; try++ {
		p, err := reservePort()
		if err != nil {
			return err
		}
		c.apiPort = p
		err = c.StartAPIServer(ctx)
		if err == nil || !errors.Is(err, errPortTaken) || try == startTries {
			return err
		}
		p.release()
	}
}

// StartAPIServer restarts kube-apiserver after it was stopped or killed, on the same port, and
// returns when it is ready: /readyz succeeds and the four bootstrap namespaces exist.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.apiserver != nil && c.mu.apiserver.running() {
		return errors.New("kube-apiserver is already running")
	}
	p, err := startProcess("kube-apiserver", filepath.Join(c.dir, "kube-apiserver.log"), c.paths.KubeAPIServer, c.apiServerArgs()...)
	if err != nil {
		return err
	}
	c.mu.apiserver = p
	return p.await(ctx, c.ready)
}

func (c *Cluster) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=" + c.EtcdURL(),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.apiPort.number),
		"--endpoint-reconciler-type=none", // a loopback address is not a valid endpoint
		"--service-cluster-ip-range=" + c.serviceRange(),
		"--cert-dir=" + filepath.Join(c.dir, "apiserver-certs"),
		"--tls-cert-file=" + c.pki.apiserver.CertFile, "--tls-private-key-file=" + c.pki.apiserver.KeyFile,
		"--client-ca-file=" + c.pki.client.pair.CertFile,
		"--token-auth-file=" + c.tokenFile,
		"--requestheader-client-ca-file=" + c.pki.frontProxy.pair.CertFile,
		"--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pki.aggregator.CertFile, "--proxy-client-key-file=" + c.pki.aggregator.KeyFile,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki.serviceAccount.CertFile,
		"--service-account-signing-key-file=" + c.pki.serviceAccount.KeyFile,
		"--allow-privileged=true",
		// Otherwise a shutdown waits a minute for open watches.
		"--shutdown-watch-termination-grace-period=5s",
	}
	if c.opts.AuthorizationWebhook != nil {
		args = append(args, "--authorization-mode=Webhook,RBAC", "--authorization-webhook-config-file="+c.webhookFile(), "--authorization-webhook-version=v1",
			"--authorization-webhook-cache-authorized-ttl=1ms", "--authorization-webhook-cache-unauthorized-ttl=1ms")
	} else {
		args = append(args, "--authorization-mode=RBAC")
	}
	if c.opts.Nodes {
		args = append(args, "--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction",
			"--kubelet-certificate-authority="+c.pki.serving.pair.CertFile,
			"--kubelet-client-certificate="+c.pki.kubelets.CertFile, "--kubelet-client-key="+c.pki.kubelets.KeyFile)
	} else {
		// Without this admission plugin, pods need no controller manager that creates service
		// accounts.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if c.opts.Release != Release130 {
		args = append(args, "--requestheader-uid-headers=X-Remote-Uid")
	}
	if len(c.opts.FeatureGates) > 0 {
		var gates []string
		for name, on := range c.opts.FeatureGates {
			gates = append(gates, fmt.Sprintf("%s=%t", name, on))
		}
		slices.Sort(gates)
		args = append(args, "--feature-gates="+strings.Join(gates, ","))
	}
	if c.opts.AuditPolicy != "" {
		args = append(args, "--audit-policy-file="+c.auditPolicyFile(), "--audit-log-path="+c.AuditLog())
	}
	return append(args, c.opts.ExtraArgs...)
}

// KubernetesService is the address of the Service kubernetes in a cluster with nodes.
const KubernetesService = "127.96.0.1"

func (c *Cluster) serviceRange() string {
	if c.opts.Nodes {
		return "127.96.0.0/16"
	}
	return "10.0.0.0/24"
}

// ready queries the server itself. Its certificate distinguishes it from any other server on the
// port.
func (c *Cluster) ready(ctx context.Context) (bool, error) {
	for _, path := range []string{
		"/readyz",
		"/api/v1/namespaces/default", "/api/v1/namespaces/kube-system",
		"/api/v1/namespaces/kube-public", "/api/v1/namespaces/kube-node-lease",
	} {
		if _, err := c.get(ctx, path); err != nil {
			return false, err
		}
	}
	return true, nil
}

// get reads a path of kube-apiserver as the administrator.
func (c *Cluster) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.AdminToken())
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %.300s", path, resp.Status, b)
	}
	return b, nil
}

// StopAPIServer ends kube-apiserver with SIGTERM and waits for it: clients see a graceful shutdown.
func (c *Cluster) StopAPIServer(ctx context.Context) error {
	p, err := c.apiServer()
	if err != nil {
		return err
	}
	return p.stop(ctx)
}

// KillAPIServer ends kube-apiserver with SIGKILL and returns when it has ended.
func (c *Cluster) KillAPIServer() error {
	p, err := c.apiServer()
	if err != nil {
		return err
	}
	p.kill()
	return nil
}

// PauseAPIServer stops kube-apiserver with SIGSTOP: see Pause.
func (c *Cluster) PauseAPIServer() error { return Pause(c.APIServerPID()) }

// ResumeAPIServer continues a paused kube-apiserver with SIGCONT.
func (c *Cluster) ResumeAPIServer() error { return Resume(c.APIServerPID()) }

// APIServerPID returns the process id of the kube-apiserver that was started last.
func (c *Cluster) APIServerPID() int {
	p, err := c.apiServer()
	if err != nil {
		return 0
	}
	return p.pid()
}

func (c *Cluster) apiServer() (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.apiserver == nil {
		return nil, errors.New("kube-apiserver was not started")
	}
	return c.mu.apiserver, nil
}
