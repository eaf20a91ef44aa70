package realkube

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"

	"k8s.io/client-go/rest"
)

// GatewayOptions configure a gateway. The zero value is usable.
type GatewayOptions struct {
	// Path of the kubeweir program. Empty means that of Kubeweir.
	Path string
	// Listen and AdminListen are loopback addresses with ports. Empty means free ports.
	Listen, AdminListen string
	// Upstream is the URL of the gateway's API server. Empty means that of the Cluster.
	Upstream string
	// ExtraArgs are appended to the gateway's flags.
	ExtraArgs []string
}

// A Gateway is a running `kubeweir gateway` in front of a Cluster. Starting and stopping it must
// not overlap; all other methods are safe for concurrent use.
type Gateway struct {
	cluster       *Cluster
	path          string
	extraArgs     []string
	serving       KeyPair
	kubeconfig    string
	logFile       string
	listen, admin string
	ports         []*port // reserved ports

	proc *process // the latest process
}

// readyLine matches the line that the gateway prints when it serves.
var readyLine = regexp.MustCompile(`(?m)^kubeweir: ready on https://\S+`)

// StartGateway is StartGatewayWith on free ports, with flags appended.
func StartGateway(ctx context.Context, c *Cluster, extraArgs ...string) (*Gateway, error) {
	return StartGatewayWith(ctx, c, GatewayOptions{ExtraArgs: extraArgs})
}

// StartGatewayWith starts `kubeweir gateway` in front of c, with a certificate of c's serving CA,
// and returns when it is ready. Its identity at kube-apiserver is GatewayUser. Several gateways may
// share a cluster.
func StartGatewayWith(ctx context.Context, c *Cluster, opts GatewayOptions) (*Gateway, error) {
	g := &Gateway{cluster: c, path: opts.Path, extraArgs: opts.ExtraArgs}
	var err error
	if g.path == "" {
		if g.path, err = Kubeweir(ctx); err != nil {
			return nil, err
		}
	}
	if g.serving, err = c.IssueServingCert("127.0.0.1", "localhost"); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		if err := g.place(opts); err != nil {
			g.Close()
			return nil, err
		}
		err := g.Start(ctx)
		if err == nil {
			return g, nil
		}
		g.Close()
		if !errors.Is(err, errPortTaken) || try == startTries || len(g.ports) == 0 {
			return nil, err
		}
	}
}

// place chooses addresses and the files named after them.
func (g *Gateway) place(opts GatewayOptions) error {
	g.listen, g.admin, g.ports = opts.Listen, opts.AdminListen, nil
	for _, addr := range []*string{&g.listen, &g.admin} {
		if *addr != "" {
			continue
		}
		p, err := reservePort()
		if err != nil {
			return err
		}
		g.ports = append(g.ports, p)
		*addr = p.addr()
	}
	_, portNumber, err := net.SplitHostPort(g.listen)
	if err != nil {
		return fmt.Errorf("gateway address: %w", err)
	}
	name := "gateway-" + portNumber
	g.logFile = filepath.Join(g.cluster.dir, name+".log")
	g.kubeconfig = filepath.Join(g.cluster.dir, name+".upstream.kubeconfig")
	return g.cluster.WriteKubeconfig(g.kubeconfig, cmp.Or(opts.Upstream, g.cluster.URL()), g.cluster.ServingCAFile(), g.cluster.Token(GatewayUser))
}

// Start restarts the gateway on the same addresses after it was stopped or killed, and returns when
// it is ready.
func (g *Gateway) Start(ctx context.Context) error {
	args := []string{
		"gateway", "--kubeconfig", g.kubeconfig,
		"--listen", g.listen, "--admin-listen", g.admin,
		"--tls-cert-file", g.serving.CertFile, "--tls-private-key-file", g.serving.KeyFile,
		"--client-ca-file", g.cluster.ClientCAFile(),
		"--requestheader-client-ca-file", g.cluster.FrontProxyCAFile(),
		"--requestheader-allowed-names", g.cluster.FrontProxyName(),
	}
	p, err := startKubeweir(g.logFile, g.path, append(args, g.extraArgs...)...)
	if err != nil {
		return err
	}
	g.proc = p
	return p.await(ctx, func(context.Context) (bool, error) { return readyLine.Match(p.log()), nil })
}

// URL returns the gateway's address for clients. It does not change on restarts.
func (g *Gateway) URL() string { return "https://" + g.listen }

// AdminURL returns the address of the admin listener, in plain HTTP.
func (g *Gateway) AdminURL() string { return "http://" + g.admin }

// PID returns the process id of the gateway that was started last.
func (g *Gateway) PID() int { return g.proc.pid() }

// Log returns the output of the gateway that was started last.
func (g *Gateway) Log() string { return string(g.proc.log()) }

// ConfigFor returns a client configuration for the gateway, without client-side rate limits.
func (g *Gateway) ConfigFor(token string) *rest.Config {
	cfg := g.cluster.ConfigFor(token)
	cfg.Host = g.URL()
	return cfg
}

// AdminConfig is ConfigFor with the cluster administrator's token.
func (g *Gateway) AdminConfig() *rest.Config { return g.ConfigFor(g.cluster.AdminToken()) }

// WriteKubeconfig writes a kubeconfig for the gateway with one bearer token.
func (g *Gateway) WriteKubeconfig(path, token string) error {
	return g.cluster.WriteKubeconfig(path, g.URL(), g.cluster.ServingCAFile(), token)
}

// Metrics scrapes the gateway's metrics.
func (g *Gateway) Metrics(ctx context.Context) (Metrics, error) { return scrape(ctx, g.AdminURL()) }

// Families is Metrics limited to the named families, which saves parsing the others.
func (g *Gateway) Families(ctx context.Context, names ...string) (Metrics, error) {
	return scrape(ctx, g.AdminURL(), names...)
}

// scrape reads the metrics of an admin listener: the named families, or all if none is named.
func scrape(ctx context.Context, admin string, families ...string) (Metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET /metrics: %s: %.300s", resp.Status, b)
	}
	return ParseMetrics(onlyFamilies(b, families))
}

// Stop ends the gateway with SIGTERM and waits while it drains. It returns an error if the gateway
// does not end or fails.
func (g *Gateway) Stop(ctx context.Context) error { return g.proc.stop(ctx) }

// Kill ends the gateway with SIGKILL and returns when it has ended.
func (g *Gateway) Kill() { g.proc.kill() }

// Signal sends a signal to the gateway, for example SIGSTOP.
func (g *Gateway) Signal(sig os.Signal) error { return g.proc.signal(sig) }

// Done returns a channel that is closed when the gateway that was started last has ended.
func (g *Gateway) Done() <-chan struct{} { return g.proc.done }

// Panicked reports whether the gateway has printed a panic or a data race since its last start.
func (g *Gateway) Panicked() bool {
	log := g.proc.log()
	return bytes.Contains(log, []byte("panic:")) || bytes.Contains(log, []byte("DATA RACE"))
}

// Close kills the gateway if it is running and releases its ports.
func (g *Gateway) Close() {
	if g.proc != nil {
		g.proc.kill()
	}
	for _, p := range g.ports {
		p.release()
	}
}

// LogFile returns the path of the gateway's output.
func (g *Gateway) LogFile() string { return g.logFile }
