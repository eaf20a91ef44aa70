package realkube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"k8s.io/client-go/rest"
)

// StandaloneOptions say how a standalone kubeweir is started.
type StandaloneOptions struct {
	// Path of the kubeweir program. Empty: cmd/kubeweir is built first.
	Path string
	// DataDir of the embedded store. Empty: a folder of its own below the cluster's.
	DataDir string
	// SharedStore makes it an API server on the cluster's etcd instead.
	SharedStore bool
	// ExtraArgs are appended to the flags.
	ExtraArgs []string
}

// A Standalone is a running `kubeweir standalone` that knows the users and authorities of a Cluster, so that the same
// credentials work at both. Starting and stopping it must not overlap; everything else may be called from many
// goroutines.
type Standalone struct {
	cluster *Cluster
	opts    StandaloneOptions
	serving KeyPair
	logFile string
	listen  string
	admin   string
	ports   []*port

	proc *process // the one started last
}

// StartStandalone starts `kubeweir standalone` on free ports and returns when it is ready.
func StartStandalone(ctx context.Context, c *Cluster, opts StandaloneOptions) (*Standalone, error) {
	s := &Standalone{cluster: c, opts: opts}
	var err error
	if s.opts.Path == "" {
		if s.opts.Path, err = buildGateway(ctx); err != nil {
			return nil, err
		}
	}
	if s.serving, err = c.IssueServingCert("127.0.0.1", "localhost"); err != nil {
		return nil, err
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
	_, number, err := net.SplitHostPort(s.listen)
	if err != nil {
		return err
	}
	name := "standalone-" + number
	s.logFile = filepath.Join(s.cluster.dir, name+".log")
	if s.opts.DataDir == "" {
		s.opts.DataDir = filepath.Join(s.cluster.dir, name)
	}
	return s.Start(ctx)
}

// Start starts it again, on the same addresses and data, after it was stopped or killed, and returns when it is ready.
func (s *Standalone) Start(ctx context.Context) error {
	c := s.cluster
	args := []string{
		"standalone", "--data-dir", s.opts.DataDir, "--listen", s.listen, "--admin-listen", s.admin,
		"--tls-cert-file", s.serving.CertFile, "--tls-private-key-file", s.serving.KeyFile,
		"--client-ca-file", c.ClientCAFile(), "--token-auth-file", c.tokenFile,
		"--disable-admission-plugins", "ServiceAccount", // as the cluster has it
	}
	if s.opts.SharedStore {
		args = append(args, "--etcd-servers", c.EtcdURL())
	}
	p, err := startProcess("kubeweir standalone", s.logFile, s.opts.Path, append(args, s.opts.ExtraArgs...)...)
	if err != nil {
		return err
	}
	s.proc = p
	return p.await(ctx, func(context.Context) (bool, error) { return readyLine.Match(p.log()), nil })
}

// URL is the address for clients; it stays the same over restarts.
func (s *Standalone) URL() string { return "https://" + s.listen }

// AdminURL is the address of the admin listener, in plain HTTP.
func (s *Standalone) AdminURL() string { return "http://" + s.admin }

// DataDir is where its data is.
func (s *Standalone) DataDir() string { return s.opts.DataDir }

// PID is the process id of the one that was started last.
func (s *Standalone) PID() int { return s.proc.pid() }

// Log is what the one that was started last has printed.
func (s *Standalone) Log() string { return string(s.proc.log()) }

// ConfigFor is a client configuration for a bearer token of the cluster's.
func (s *Standalone) ConfigFor(token string) *rest.Config {
	cfg := s.cluster.ConfigFor(token)
	cfg.Host = s.URL()
	return cfg
}

// AdminConfig is ConfigFor the cluster's administrator.
func (s *Standalone) AdminConfig() *rest.Config { return s.ConfigFor(s.cluster.AdminToken()) }

// WriteKubeconfig writes a kubeconfig for one bearer token.
func (s *Standalone) WriteKubeconfig(path, token string) error {
	return s.cluster.WriteKubeconfig(path, s.URL(), s.cluster.ServingCAFile(), token)
}

// Stop asks it to end (SIGTERM) and waits. One that does not end, or ends with a failure, is an error.
func (s *Standalone) Stop(ctx context.Context) error { return s.proc.stop(ctx) }

// Kill ends it with SIGKILL and returns when it is gone.
func (s *Standalone) Kill() { s.proc.kill() }

// Close kills it if it still runs and gives its ports back.
func (s *Standalone) Close() {
	if s.proc != nil {
		s.proc.kill()
	}
	for _, p := range s.ports {
		p.release()
	}
}
