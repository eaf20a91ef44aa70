package edge

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"sync"
	"time"
)

// Lifetimes of generated certificates. The CA lives as long as the process, which
// signs a new serving certificate when the old one has less than renewBefore
// left; some clients refuse serving certificates of more than 825 days.
const (
	caLifetime      = 10 * 365 * 24 * time.Hour
	ServingLifetime = 365 * 24 * time.Hour
	RenewBefore     = 60 * 24 * time.Hour
	// backdated allows for clients whose clock is behind.
	backdated = time.Hour
)

// generatedCertificate is a CA of this process's own and a serving certificate
// that it signed. Both are lost with the process.
type generatedCertificate struct {
	Now   func() time.Time
	hosts []string
	ca    *x509.Certificate
	caKey *ecdsa.PrivateKey
	CaPEM []byte

	mu      sync.Mutex
	serving *tls.Certificate // guarded by mu
}

// NewGeneratedCertificate makes a CA and a certificate for host (unless it is
// unspecified), localhost, 127.0.0.1 and ::1.
func NewGeneratedCertificate(host string, now func() time.Time) (*generatedCertificate, error) {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) && !slices.Contains(hosts, host) {
		hosts = append(hosts, host)
	}
	g := &generatedCertificate{Now: now, hosts: hosts}
	if err := g.newCA(); err != nil {
		return nil, fmt.Errorf("generating a CA: %w", err)
	}
	if _, err := g.Certificate(); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *generatedCertificate) newCA() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "kubeweir generated CA"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	g.caKey, g.ca = key, template
	der, err := g.sign(template, &key.PublicKey, caLifetime)
	if err != nil {
		return err
	}
	if g.ca, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	g.CaPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return nil
}

// Certificate returns the serving certificate, a new one when it is about to
// expire.
func (g *generatedCertificate) Certificate() (*tls.Certificate, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.serving != nil && g.Now().Before(g.serving.Leaf.NotAfter.Add(-RenewBefore)) {
		return g.serving, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a serving key: %w", err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kubeweir"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range g.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := g.sign(template, &key.PublicKey, ServingLifetime)
	if err != nil {
		return nil, fmt.Errorf("generating a serving certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("generating a serving certificate: %w", err)
	}
	g.serving = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	return g.serving, nil
}

// sign fills in serial number and validity and signs with the CA's key.
func (g *generatedCertificate) sign(template *x509.Certificate, public *ecdsa.PublicKey, lifetime time.Duration) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = g.Now().Add(-backdated)
	template.NotAfter = g.Now().Add(lifetime)
	return x509.CreateCertificate(rand.Reader, template, g.ca, public, g.caKey)
}
