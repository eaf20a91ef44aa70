package certs

import (
	"crypto/tls"
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

// Generated is the serving certificate of a gateway without --tls-cert-file and the CA that signs
// it. Both are kept in a directory, so that clients need to learn the CA only once. It is safe for
// concurrent use, but for Cover.
type Generated struct {
	material atomic.Pointer[pki.Material]
	dir      string // "" if CA and certificate live as long as the process
	host     string // of the listener
	config   *config.Gateway
}

// NewGenerated loads or creates the CA and the certificate; nil if none is needed. Without a
// writable directory, as in a container without a home, they are only in memory unless --cert-dir
// is set.
func NewGenerated(c *config.Gateway, log *slog.Logger) (*Generated, error) {
	if c.Listen == "" || c.TLS.CertFile != "" {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	g := &Generated{dir: c.CertDir, host: host, config: c}
	if g.dir == "" {
		var cache string
		if cache, err = os.UserCacheDir(); err == nil {
			g.dir = filepath.Join(cache, "kubeweir")
		}
	}
	if err == nil {
		err = g.Cover(c)
	}
	if err != nil && c.CertDir == "" {
		log.Info("generated CA is not kept", "error", err)
		g.dir = ""
		err = g.Cover(c)
	}
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	return g, nil
}

// Cover makes the certificate valid for the listener, for the name of this machine, and for the
// hosts of all clusters of c. Calls must not be concurrent.
func (g *Generated) Cover(c *config.Gateway) (err error) {
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

// Certificate returns the certificate for a handshake.
func (g *Generated) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return g.material.Load().ServingCertificate(hello)
}

// IsPersistent reports whether the CA outlives the process.
func (g *Generated) IsPersistent() bool { return g.dir != "" }

// CACertPEM returns the certificate of the CA.
func (g *Generated) CACertPEM() []byte { return g.material.Load().CA.CertPEM }

// WriteKubeconfig writes a kubeconfig with the gateway's address and CA, and returns the value for
// KUBECONFIG: that file and the gateway's own kubeconfig, where the credentials stay.
func (g *Generated) WriteKubeconfig(listener net.Addr) (string, error) {
	_, port, err := net.SplitHostPort(listener.String())
	if err != nil {
		return "", err
	}
	address := net.JoinHostPort(ClientHost(g.host), port)
	// Several gateways may share the directory, so each address has a file of its own.
	path, err := filepath.Abs(filepath.Join(g.dir, "kubeconfig-"+fileName(address)))
	if err != nil {
		return "", err
	}
	user, list := "", path
	if file := g.config.Kubeconfig; file != "" {
		if loaded, err := clientcmd.LoadFromFile(file); err == nil {
			name := g.config.Context
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

// fileName returns an address in a form that file names may have.
func fileName(address string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("[]:%/\\", r) {
			return '-'
		}
		return r
	}, address)
}

// ClientHost returns the host by which clients on this machine reach a listener.
func ClientHost(listen string) string {
	if ip := net.ParseIP(listen); listen == "" || ip != nil && ip.IsUnspecified() {
		return "127.0.0.1"
	}
	return listen
}
