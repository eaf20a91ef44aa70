package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/origin/pki"
)

// gatewayCert is what a gateway serves with that was given no certificate: one of a CA
// that is kept, so that clients need to be told of it only once.
type gatewayCert struct {
	material atomic.Pointer[pki.Material]
	dir      string
	host     string // of the listener
	upstream *config.Gateway
}

// newGatewayCert makes or loads the CA and the certificate. It is nil, and generatedCert makes
// ones that live as long as the process, where there is no folder for them: a container
// has no home, or its disk is read-only.
func newGatewayCert(c *config.Gateway, log *slog.Logger) (*gatewayCert, error) {
	if c.Listen == "" || c.TLS.CertFile != "" {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	g := &gatewayCert{dir: c.CertDir, host: host, upstream: c}
	if g.dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			log.Info("a generated CA is not kept", "error", err)
			return nil, nil
		}
		g.dir = filepath.Join(cache, "kubeweir")
	}
	err = g.open(c)
	var path *os.PathError
	var call *os.SyscallError // a file system without locks
	switch {
	case err == nil:
		return g, nil
	case c.CertDir == "" && (errors.As(err, &path) || errors.As(err, &call)):
		log.Info("a generated CA is not kept", "error", err)
		return nil, nil
	}
	return nil, fmt.Errorf("--cert-dir: %w", err)
}

// generatedCert makes a CA and a certificate that live as long as the process, nil where a
// certificate was given or none is needed.
func generatedCert(c *config.Gateway) (*pki.Material, error) {
	if c.Listen == "" || c.TLS.CertFile != "" {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return pki.ServingInMemory(pki.Options{Hosts: []string{host}})
}

// open loads the material, and makes what it lacks: it is good for the listener, for this
// machine's name and for the hosts of all clusters.
func (g *gatewayCert) open(c *config.Gateway) error {
	options := pki.Options{Hosts: []string{g.host}}
	if name, err := os.Hostname(); err == nil {
		options.Hosts = append(options.Hosts, name)
	}
	for i := range c.Clusters {
		options.Hosts = append(options.Hosts, c.Clusters[i].Hosts...)
	}
	material, err := pki.OpenServing(g.dir, options)
	if err == nil {
		g.material.Store(material)
	}
	return err
}

// kubeconfig writes one that names the gateway, and returns what KUBECONFIG is to be: the
// credentials stay where they are, in the kubeconfig that the gateway was given.
func (g *gatewayCert) kubeconfig(listener net.Addr) (string, error) {
	_, port, err := net.SplitHostPort(listener.String())
	if err != nil {
		return "", err
	}
	address := net.JoinHostPort(clientHost(g.host), port)
	// Gateways of several clusters may share the folder, and a shell that was told of one
	// must not be led to another.
	path, err := filepath.Abs(filepath.Join(g.dir, kubeconfig+"-"+fileName(address)))
	if err != nil {
		return "", err
	}
	user, list := "", path
	if file := g.upstream.Kubeconfig; file != "" {
		if loaded, err := clientcmd.LoadFromFile(file); err == nil {
			name := g.upstream.Context
			if name == "" {
				name = loaded.CurrentContext
			}
			if context := loaded.Contexts[name]; context != nil {
				user = context.AuthInfo
			}
		}
		if file, err = filepath.Abs(file); err != nil {
			return "", err
		}
		list += string(filepath.ListSeparator) + file
	}
	return list, g.material.Load().WriteClusterKubeconfig(path, "https://"+address, user)
}

// fileName is an address as a part of a file's name.
func fileName(address string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("[]:%/\\", r) {
			return '-'
		}
		return r
	}, address)
}
