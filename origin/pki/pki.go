// Package pki makes and keeps the key material of one origin: its CA and the
// certificates below it, the front proxy's CA and certificate, the key that signs
// service-account tokens, and the admin's kubeconfig.
//
// Names, subjects and usages are those that kubeadm gives a kube-apiserver, so
// that the folder can be read by whoever knows such clusters and be replaced by
// one that was made elsewhere. Keys are ECDSA P-256; RSA keys and other curves are
// accepted where they are found.
package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Names that requests are authenticated with by their certificate.
const (
	// AdminUser and AdminGroup are the common name and organization of the admin's
	// certificate. kube-apiserver permits the group everything, without asking RBAC.
	AdminUser  = "kubernetes-admin"
	AdminGroup = "system:masters"
	// FrontProxyUser is the common name of the certificate by which aggregated API servers
	// recognize the origin, so that they trust its X-Remote-* headers.
	FrontProxyUser = "front-proxy-client"
	// KubeletClientUser is the common name of the certificate for requests to kubelets, such as
	// logs and exec. It is in AdminGroup, so that a kubelet that authorizes it at the origin
	// permits it without an extra binding.
	KubeletClientUser = "kube-apiserver-kubelet-client"
)

const kubeletClientName = "apiserver-kubelet-client"

// Options describe the subjects of the certificates.
type Options struct {
	// Hosts are names and IP addresses that clients reach the server by, besides
	// localhost, the loopback addresses and the names of the Service kubernetes.
	// Unspecified addresses ("0.0.0.0", "::", "") are ignored.
	Hosts []string
	// ServiceIP is the first address of the service range, that of the Service
	// kubernetes. The zero value: none.
	ServiceIP netip.Addr
	// Now is the clock, time.Now if nil.
	Now func() time.Time
}

func (o Options) now() time.Time {
	if o.Now != nil {
		return o.Now()
	}
	return time.Now()
}

// KeyPair is a certificate and its private key. It is not changed once made.
type KeyPair struct {
	CertPEM, KeyPEM []byte
	// Certificate is the first one of CertPEM.
	Certificate *x509.Certificate
	Key         crypto.Signer
}

// TLS is the pair as crypto/tls wants it.
func (p *KeyPair) TLS() tls.Certificate {
	cert := tls.Certificate{PrivateKey: p.Key, Leaf: p.Certificate}
	for rest := p.CertPEM; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return cert
		}
		cert.Certificate = append(cert.Certificate, block.Bytes)
	}
}

// Material is everything that one origin needs to prove who it is and to know who
// others are. Its methods may be called from any goroutine; its fields are not
// changed.
type Material struct {
	// CA signs serving and client certificates.
	CA *KeyPair
	// Serving is the server's own certificate when the material was created or loaded;
	// ServingCertificate follows renewals.
	Serving *KeyPair
	// Admin is a client that may do everything.
	Admin *KeyPair
	// KubeletClient is the certificate for requests to kubelets.
	KubeletClient *KeyPair
	// FrontProxyCA signs FrontProxyClient, by which aggregated API servers know the
	// origin. It is another one than CA: whoever it signs may say who a user is.
	FrontProxyCA, FrontProxyClient *KeyPair
	// ServiceAccountKey signs service-account tokens.
	ServiceAccountKey    crypto.Signer
	ServiceAccountKeyPEM []byte
	// ServingRoots are more certificates, in PEM, that clients trust: those of a server whose serving
	// certificate is not Serving.
	ServingRoots []byte

	options Options
	dir     string // "" in memory

	mu      sync.Mutex
	serving *tls.Certificate // guarded by mu: the one to serve with now
}

// Roots returns the certificates, in PEM, by which clients verify the server.
func (m *Material) Roots() []byte { return slices.Concat(m.CA.CertPEM, m.ServingRoots) }

// InMemory creates material that exists in memory only, in a few milliseconds: for tests.
func InMemory(o Options) (*Material, error) {
	return assemble(o, memory{})
}

// ServingInMemory creates a CA and a serving certificate that exist in memory only.
func ServingInMemory(o Options) (*Material, error) { return assembleServing(o, memory{}) }

// CAPool holds the CA alone: what clients verify the server with, and the server
// clients.
func (m *Material) CAPool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(m.CA.Certificate)
	return pool
}

// ServingCertificate is for tls.Config.GetCertificate. When the certificate of a running process is
// about to expire, it issues a new one with the same key. That one stays in memory; the next start
// issues one that is saved.
func (m *Material) ServingCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.serving == nil {
		cert := m.Serving.TLS()
		m.serving = &cert
	}
	now := m.options.now()
	if !nearEnd(m.serving.Leaf, now) {
		return m.serving, nil
	}
	renewed, err := issue(servingSpec(m.options), m.CA, m.Serving.Key, now)
	if err != nil {
		return m.serving, nil // better than none; the client judges
	}
	cert := renewed.TLS()
	m.serving = &cert
	return m.serving, nil
}

// KubeletClientFiles are the paths of KubeletClient's certificate and key, "" when the
// material is in memory.
func (m *Material) KubeletClientFiles() (cert, key string) {
	if m.dir == "" {
		return "", ""
	}
	base := filepath.Join(m.dir, kubeletClientName)
	return base + ".crt", base + ".key"
}

// CAFiles are the paths of CA's certificate and key, "" when the material is in memory or the file has
// more certificates than CA's.
func (m *Material) CAFiles() (cert, key string) {
	if m.dir == "" || len(m.CA.TLS().Certificate) > 1 {
		return "", ""
	}
	return filepath.Join(m.dir, "ca.crt"), filepath.Join(m.dir, "ca.key")
}

// IssueClient issues a certificate, with a new key, that authenticates a client as the user in the
// given groups. It is valid for a year.
func (m *Material) IssueClient(user string, groups ...string) (*KeyPair, error) {
	return issue(clientSpec("", user, groups...), m.CA, nil, m.options.now())
}

// storage is where material is kept: nowhere, or in a folder.
type storage interface {
	// pair returns the pair of that name, nil when there is none yet.
	pair(name string) (*KeyPair, error)
	// key returns the private key of that name, nil when there is none yet.
	key(name string) (crypto.Signer, []byte, error)
	// save keeps a pair; the key is written only if it is new.
	save(name string, p *KeyPair, newKey bool) error
	saveKey(name string, key crypto.Signer, keyPEM []byte) error
}

type memory struct{}

func (memory) pair(string) (*KeyPair, error)               { return nil, nil }
func (memory) key(string) (crypto.Signer, []byte, error)   { return nil, nil, nil }
func (memory) save(string, *KeyPair, bool) error           { return nil }
func (memory) saveKey(string, crypto.Signer, []byte) error { return nil }

// assembleServing is assemble for who only serves: a CA and a certificate.
func assembleServing(o Options, k storage) (*Material, error) {
	o.Hosts = slices.Clone(o.Hosts)
	m := &Material{options: o}
	var err error
	if m.CA, err = authority(k, "ca", "kubeweir", o.now()); err != nil {
		return nil, err
	}
	m.Serving, err = leafOf(k, servingSpec(o), m.CA, o.now())
	return m, err
}

// assemble loads the valid material from k, and creates the rest.
func assemble(o Options, k storage) (*Material, error) {
	o.Hosts = slices.Clone(o.Hosts)
	m := &Material{options: o}
	var err error
	if m.CA, err = authority(k, "ca", "kubernetes", o.now()); err != nil {
		return nil, err
	}
	if m.FrontProxyCA, err = authority(k, "front-proxy-ca", "front-proxy-ca", o.now()); err != nil {
		return nil, err
	}
	for _, leaf := range []struct {
		to   **KeyPair
		spec spec
		ca   *KeyPair
	}{
		{&m.Serving, servingSpec(o), m.CA},
		{&m.Admin, clientSpec("admin", AdminUser, AdminGroup), m.CA},
		{&m.KubeletClient, clientSpec(kubeletClientName, KubeletClientUser, AdminGroup), m.CA},
		{&m.FrontProxyClient, clientSpec("front-proxy-client", FrontProxyUser), m.FrontProxyCA},
	} {
		if *leaf.to, err = leafOf(k, leaf.spec, leaf.ca, o.now()); err != nil {
			return nil, err
		}
	}
	m.ServiceAccountKey, m.ServiceAccountKeyPEM, err = signingKey(k, "sa")
	if err != nil {
		return nil, err
	}
	return m, nil
}
