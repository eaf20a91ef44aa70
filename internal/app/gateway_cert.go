package app

import (
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

// gatewayCert is the serving certificate of a gateway without --tls-cert-file. Its CA is kept in a
// folder, so that clients need to learn it only once.
type gatewayCert struct {
	material atomic.Pointer[pki.Material]
	dir      string // "" if CA and certificate live as long as the process
	host     string // of the listener
	upstream *config.Gateway
}

// newGatewayCert loads or creates the CA and the certificate; nil if none is needed. Where there is
// no folder for them, because a container has no home or its disk is read-only, they are kept in
// memory.
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
		var cache string
		if cache, err = os.UserCacheDir(); err == nil {
			g.dir = filepath.Join(cache, "kubeweir")
		}
	}
	if err == nil {
		err = g.open(c)
	}
	if err != nil && c.CertDir == "" {
		log.Info("generated CA is not kept", "error", err)
		g.dir = ""
		err = g.open(c)
	}
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	return g, nil
}

// open loads the material and creates the missing parts. The certificate is valid for the listener, for
// the name of this machine, and for the hosts of all clusters.
func (g *gatewayCert) open(c *config.Gateway) (err error) {
	options := pki.Options{Hosts: []string{g.host}}
	if name, err := os.Hostname(); err == nil {
		options.Hosts = append(options.Hosts, name)
	}
	for i := range c.Clusters {
		options.Hosts = append(options.Hosts, c.Clusters[i].Hosts...)
	}
	material := g.material.Load()
	switch {
	case g.dir != "":
		material, err = pki.OpenServing(g.dir, options)
	case material == nil:
		material, err = pki.ServingInMemory(options)
	}
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
