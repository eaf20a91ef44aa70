package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Lifetimes. A certificate is renewed, with its old key, when less than
// leafRenewal or caRenewal of it is left; a CA early enough that what it signs can
// still live for its full year. Some clients refuse serving certificates of more
// than 825 days.
const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
	leafRenewal  = 120 * 24 * time.Hour
	caRenewal    = leafLifetime + leafRenewal
	// backdated allows for clients whose clock is behind.
	backdated = time.Hour
)

const (
	certBlock = "CERTIFICATE"
	keyBlock  = "PRIVATE KEY" // PKCS #8
)

// A spec is what a certificate is to say.
type spec struct {
	name   string // of its files, without extension
	user   string // common name
	groups []string
	usage  x509.ExtKeyUsage
	dns    []string
	ips    []netip.Addr
}

func clientSpec(name, user string, groups ...string) spec {
	return spec{name: name, user: user, groups: groups, usage: x509.ExtKeyUsageClientAuth}
}

// servingSpec names everything that the server is reached by. The names of the
// Service kubernetes are kube-apiserver's own (cmd/kube-apiserver/app/options).
func servingSpec(o Options) spec {
	s := spec{
		name:  "apiserver",
		user:  "kube-apiserver",
		usage: x509.ExtKeyUsageServerAuth,
		dns: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster", "kubernetes.default.svc.cluster.local",
		},
		ips: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()},
	}
	if o.ServiceIP.IsValid() {
		s.ips = append(s.ips, o.ServiceIP.Unmap())
	}
	for _, host := range o.Hosts {
		ip, err := netip.ParseAddr(host)
		switch {
		case host == "", err == nil && ip.IsUnspecified():
		case err != nil:
			s.dns = append(s.dns, host)
		default:
			s.ips = append(s.ips, ip.WithZone("").Unmap())
		}
	}
	slices.Sort(s.dns)
	slices.SortFunc(s.ips, netip.Addr.Compare)
	s.dns, s.ips = slices.Compact(s.dns), slices.Compact(s.ips)
	return s
}

// covers reports whether a certificate has everything that the spec requires; it may have more.
func (s spec) covers(cert *x509.Certificate) bool {
	for _, name := range s.dns {
		if !slices.Contains(cert.DNSNames, name) {
			return false
		}
	}
	for _, ip := range s.ips {
		if !slices.ContainsFunc(cert.IPAddresses, net.IP(ip.AsSlice()).Equal) {
			return false
		}
	}
	groups := slices.Clone(cert.Subject.Organization)
	slices.Sort(groups)
	wanted := slices.Clone(s.groups)
	slices.Sort(wanted)
	return cert.Subject.CommonName == s.user && slices.Equal(groups, wanted) && slices.Contains(cert.ExtKeyUsage, s.usage)
}

// nearEnd reports whether a certificate must be renewed. One with a shorter lifetime than ours is
// renewed when a third of it is left.
func nearEnd(cert *x509.Certificate, now time.Time) bool {
	margin := leafRenewal
	if cert.IsCA {
		margin = caRenewal
	}
	margin = min(margin, cert.NotAfter.Sub(cert.NotBefore)/3)
	return cert.NotAfter.Sub(now) < margin
}

// authority returns a CA: the one that is kept, renewed if need be, or a new one.
func authority(k storage, name, subject string, now time.Time) (*KeyPair, error) {
	ca, err := k.pair(name)
	if err != nil {
		return nil, err
	}
	var key crypto.Signer
	if ca != nil {
		cert := ca.Certificate
		switch selfSigned := cert.CheckSignatureFrom(cert) == nil; {
		case !cert.IsCA:
			return nil, fmt.Errorf("%s.crt is not the certificate of a CA", name)
		case !nearEnd(cert, now):
			return ca, nil
		case !selfSigned && now.After(cert.NotAfter):
			return nil, fmt.Errorf("%s.crt expired on %s and was signed by another CA, which has to renew it", name, cert.NotAfter.Format(time.DateOnly))
		case !selfSigned:
			return ca, nil
		}
		key = ca.Key
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: subject},
		NotBefore:             now.Add(-backdated),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if ca != nil {
		// Same subject, key and key id: what the old certificate verifies, the new one does too.
		template.RawSubject, template.SubjectKeyId = ca.Certificate.RawSubject, ca.Certificate.SubjectKeyId
	}
	made, err := sign(template, nil, key)
	if err != nil {
		return nil, fmt.Errorf("making %s.crt: %w", name, err)
	}
	return made, k.save(name, made, key == nil)
}

// leafOf returns a certificate below ca: the one that is kept, renewed if it is
// near its end or does not say what it should, or a new one.
func leafOf(k storage, s spec, ca *KeyPair, now time.Time) (*KeyPair, error) {
	old, err := k.pair(s.name)
	if err != nil {
		return nil, err
	}
	var key crypto.Signer
	if old != nil {
		if err := old.Certificate.CheckSignatureFrom(ca.Certificate); err != nil {
			return nil, fmt.Errorf("%s.crt was not signed by the CA beside it (%w); remove %s.crt and %s.key to have new ones made", s.name, err, s.name, s.name)
		}
		if s.covers(old.Certificate) && !nearEnd(old.Certificate, now) {
			return old, nil
		}
		key = old.Key
	}
	made, err := issue(s, ca, key, now)
	if err != nil {
		return nil, fmt.Errorf("making %s.crt: %w", s.name, err)
	}
	return made, k.save(s.name, made, key == nil)
}

// issue issues a certificate below ca, for a new key if key is nil.
func issue(s spec, ca *KeyPair, key crypto.Signer, now time.Time) (*KeyPair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: s.user, Organization: s.groups},
		NotBefore:             now.Add(-backdated),
		NotAfter:              now.Add(leafLifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{s.usage},
		BasicConstraintsValid: true,
		DNSNames:              s.dns,
	}
	if ca.Certificate.NotAfter.Before(template.NotAfter) {
		template.NotAfter = ca.Certificate.NotAfter
	}
	for _, ip := range s.ips {
		template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
	}
	return sign(template, ca, key)
}

// sign signs a template by ca, by itself if ca is nil.
func sign(template *x509.Certificate, ca *KeyPair, key crypto.Signer) (*KeyPair, error) {
	if key == nil {
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, err
		}
	}
	parent, signer := template, key
	if ca != nil {
		parent, signer = ca.Certificate, ca.Key
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: der})
	return &KeyPair{CertPEM: certPEM, KeyPEM: keyPEM, Certificate: cert, Key: key}, nil
}

// signingKey returns a key without a certificate.
func signingKey(k storage, name string) (crypto.Signer, []byte, error) {
	key, keyPEM, err := k.key(name)
	if err != nil || key != nil {
		return key, keyPEM, err
	}
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making %s.key: %w", name, err)
	}
	if keyPEM, err = encodeKey(made); err != nil {
		return nil, nil, fmt.Errorf("making %s.key: %w", name, err)
	}
	return made, keyPEM, k.saveKey(name, made, keyPEM)
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// parseKey reads the first private key of a PEM text: PKCS #8, PKCS #1 or SEC 1,
// not encrypted.
func parseKey(text []byte) (crypto.Signer, error) {
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("no PEM block of a private key")
		}
		switch block.Type {
		case "EC PRIVATE KEY":
			return x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			return x509.ParsePKCS1PrivateKey(block.Bytes)
		case keyBlock:
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, err
			}
			if signer, ok := key.(crypto.Signer); ok {
				return signer, nil
			}
			return nil, fmt.Errorf("a key of type %T cannot sign", key)
		}
	}
}

func parseCert(text []byte) (*x509.Certificate, error) {
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("no PEM block of a certificate")
		}
		if block.Type == certBlock {
			return x509.ParseCertificate(block.Bytes)
		}
	}
}

// samePublicKey reports whether two public keys are equal.
func samePublicKey(a, b crypto.PublicKey) bool {
	key, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(b)
}
