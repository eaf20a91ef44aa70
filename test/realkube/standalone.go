package realkube

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// StandaloneOptions configure a standalone kubeweir.
type StandaloneOptions struct {
	// Path of the kubeweir program. Empty means that of Kubeweir.
	Path string
	// Dir holds data and logs.
	Dir string
	// Cluster, if set, is the cluster whose users and CAs the standalone uses, so that the same
	// credentials are valid at both.
	Cluster *Cluster
	// SharedStore makes it an API server on the cluster's etcd instead of a store of its own.
	SharedStore bool
	// ExtraArgs are appended to the flags.
	ExtraArgs []string
}

// A Standalone is a running `kubeweir standalone`. Starting and stopping it must not overlap; all
// other methods are safe for concurrent use.
type Standalone struct {
	opts    StandaloneOptions
	serving KeyPair // issued by the cluster, if set
	logFile string
	listen  string
	admin   string
	ports   []*port

	proc *process // the latest process
}

// StartStandalone starts `kubeweir standalone` on free ports and returns when it is ready.
func StartStandalone(ctx context.Context, opts StandaloneOptions) (*Standalone, error) {
	s := &Standalone{opts: opts}
	var err error
	if s.opts.Path == "" {
		if s.opts.Path, err = Kubeweir(ctx); err != nil {
			return nil, err
		}
	}
	if opts.Cluster != nil {
		if s.serving, err = opts.Cluster.IssueServingCert("127.0.0.1", "localhost"); err != nil {
			return nil, err
		}
	}
	for try := 1; ; try++ {
		err := s.startOnNewPorts(ctx)
		if err == nil {
			return s, nil
		}
		log := ""
		if s.proc != nil {
			log = s.Log()
		}
		s.Close()
		if !errors.Is(err, errPortTaken) || try == startTries {
			return nil, fmt.Errorf("%w\n%s", err, log)
		}
	}
}

func (s *Standalone) startOnNewPorts(ctx context.Context) error {
	s.ports = nil
	for _, addr := range []*string{&s.listen, &s.admin} {
		p, err := reservePort()
		if err != nil {
			return err
		}
		s.ports = append(s.ports, p)
		*addr = p.addr()
	}
	s.logFile = filepath.Join(s.opts.Dir, "standalone.log")
	return s.Start(ctx)
}

// Start restarts it on the same addresses and data after it was stopped or killed, and returns when
// it is ready.
func (s *Standalone) Start(ctx context.Context) error {
	args := []string{"standalone", "--data-dir", s.DataDir(), "--listen", s.listen, "--admin-listen", s.admin}
	if c := s.opts.Cluster; c != nil {
		args = append(args,
			"--tls-cert-file", s.serving.CertFile, "--tls-private-key-file", s.serving.KeyFile,
			"--client-ca-file", c.ClientCAFile(), "--token-auth-file", c.tokenFile,
			"--disable-admission-plugins", "ServiceAccount", // as in the cluster
		)
	}
	if s.opts.SharedStore {
		args = append(args, "--etcd-servers", s.opts.Cluster.EtcdURL())
	}
	p, err := startKubeweir(s.logFile, s.opts.Path, append(args, s.opts.ExtraArgs...)...)
	if err != nil {
		return err
	}
	s.proc = p
	return p.await(ctx, func(context.Context) (bool, error) { return readyLine.Match(p.log()), nil })
}

// URL returns the address for clients. It does not change on restarts.
func (s *Standalone) URL() string { return "https://" + s.listen }

// AdminURL returns the address of the admin listener, in plain HTTP.
func (s *Standalone) AdminURL() string { return "http://" + s.admin }

// Metrics scrapes the standalone's metrics.
func (s *Standalone) Metrics(ctx context.Context) (Metrics, error) { return scrape(ctx, s.AdminURL()) }

// Families is Metrics limited to the named families, which saves parsing the others.
func (s *Standalone) Families(ctx context.Context, names ...string) (Metrics, error) {
	return scrape(ctx, s.AdminURL(), names...)
}

// DataDir returns the data folder. Its subfolder pki contains the keys.
func (s *Standalone) DataDir() string { return filepath.Join(s.opts.Dir, "data") }

// Kubeconfig returns the path of the administrator's kubeconfig, which the standalone writes.
func (s *Standalone) Kubeconfig() string { return filepath.Join(s.DataDir(), "kubeconfig") }

// PID returns the process id since the last start.
func (s *Standalone) PID() int { return s.proc.pid() }

// Log returns the output since the last start.
func (s *Standalone) Log() string { return string(s.proc.log()) }

// AdminConfig returns a client configuration for the administrator, the cluster's if Cluster is
// set, without client-side rate limits.
func (s *Standalone) AdminConfig() (*rest.Config, error) {
	if c := s.opts.Cluster; c != nil {
		cfg := c.AdminConfig()
		cfg.Host = s.URL()
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	return cfg, nil
}

// Stop ends it with SIGTERM and waits. It returns an error if the process does not end or fails.
func (s *Standalone) Stop(ctx context.Context) error { return s.proc.stop(ctx) }

// Kill ends it with SIGKILL and returns when it has ended.
func (s *Standalone) Kill() { s.proc.kill() }

// Close kills it if it is running and releases its ports.
func (s *Standalone) Close() {
	if s.proc != nil {
		s.proc.kill()
	}
	for _, p := range s.ports {
		p.release()
	}
}
