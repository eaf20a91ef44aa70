package realkube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certLife is how long issued certificates are valid, from an hour before now.
const certLife = 30 * 24 * time.Hour

// A KeyPair is a certificate with its private key, both as PEM and as files (keys with mode 0600).
type KeyPair struct {
	CertFile, KeyFile string
	CertPEM, KeyPEM   []byte
}

// An authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pair KeyPair
}

func newAuthority(dir, name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl, err := template(name)
	if err != nil {
		return nil, err
	}
	tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
	tmpl.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	pair, err := writePair(dir, name, der, key)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pair: pair}, nil
}

// issueServer issues a serving certificate for the given IP addresses and DNS names.
func (a *authority) issueServer(dir, file string, hosts ...string) (KeyPair, error) {
	tmpl, err := template(file)
	if err != nil {
		return KeyPair{}, err
	}
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	return a.issue(dir, file, tmpl)
}

// issueClient issues a client certificate: Kubernetes reads the user from the common name and
// groups from the organizations.
func (a *authority) issueClient(dir, file, user string, groups ...string) (KeyPair, error) {
	tmpl, err := template(user)
	if err != nil {
		return KeyPair{}, err
	}
	tmpl.Subject.Organization = groups
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(dir, file, tmpl)
}

func (a *authority) issue(dir, file string, tmpl *x509.Certificate) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("issue certificate %s: %w", file, err)
	}
	return writePair(dir, file, der, key)
}

func template(commonName string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	start := time.Now().Add(-time.Hour)
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    start,
		NotAfter:     start.Add(certLife),
	}, nil
}

func writePair(dir, file string, der []byte, key *ecdsa.PrivateKey) (KeyPair, error) {
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return KeyPair{}, err
	}
	p := KeyPair{
		CertFile: filepath.Join(dir, file+".crt"),
		KeyFile:  filepath.Join(dir, file+".key"),
		CertPEM:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPEM:   pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
	if err := os.WriteFile(p.CertFile, p.CertPEM, 0o644); err != nil {
		return KeyPair{}, err
	}
	return p, os.WriteFile(p.KeyFile, p.KeyPEM, 0o600)
}

// pki holds a cluster's CAs and certificates. Each purpose has its own CA, so that a certificate
// that is accepted in the wrong place makes a test fail.
type pki struct {
	serving, client, frontProxy *authority

	apiserver      KeyPair // kube-apiserver's serving certificate
	aggregator     KeyPair // kube-apiserver's front-proxy client certificate
	kubelets       KeyPair // kube-apiserver's client certificate for kubelets
	serviceAccount KeyPair // signs and verifies service-account tokens
}

// frontProxyName is the one common name that may send X-Remote-* headers.
const frontProxyName = "front-proxy-client"

func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var p pki
	for name, a := range map[string]**authority{"ca": &p.serving, "client-ca": &p.client, "front-proxy-ca": &p.frontProxy} {
		var err error
		if *a, err = newAuthority(dir, name); err != nil {
			return nil, fmt.Errorf("authority %s: %w", name, err)
		}
	}
	var err error
	if p.apiserver, err = p.serving.issueServer(dir, "kube-apiserver", "127.0.0.1", "localhost", "10.0.0.1", KubernetesService,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc"); err != nil {
		return nil, err
	}
	if p.aggregator, err = p.frontProxy.issueClient(dir, "aggregator", frontProxyName); err != nil {
		return nil, err
	}
	if p.kubelets, err = p.client.issueClient(dir, "kubelets", "kube-apiserver-kubelet-client", "system:masters"); err != nil {
		return nil, err
	}
	sa, err := newAuthority(dir, "service-account")
	if err != nil {
		return nil, err
	}
	p.serviceAccount = sa.pair
	return &p, nil
}
