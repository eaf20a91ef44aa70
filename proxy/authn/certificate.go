package authn

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/proxy/review"
)

// certificates is what a TLS client presented: its own certificate and then
// those that lead to a CA.
type certificates []*x509.Certificate

// verifier verifies client certificates against one CA file. What came of it, good or
// bad, is remembered by the leaf, which crypto/tls parses once a connection, so that a
// request costs a lookup and not a signature check.
//
// The intermediates are not part of the key: whoever holds the leaf's key presented
// them with it, once for the connection.
type verifier struct {
	ca       *caFile
	verified *review.Cache[certKey, verifiedCert]
	// bad is apart, because anybody can present what is no good.
	bad *review.Cache[certKey, error]
}

type certKey struct {
	leaf *x509.Certificate
	pool *x509.CertPool
}

// verifiedCert is what is remembered of a verified leaf.
type verifiedCert struct {
	identity *Identity // of the caller's making, may be nil
	expires  time.Time // when the first certificate of the chain expires
}

const (
	// verifiedTTL bounds how long a verified leaf is remembered, and with it how
	// long its memory is held after the connection is gone.
	verifiedTTL = time.Minute
	// badTTL is how long one that is no good is remembered; it may only not be good
	// yet.
	badTTL = 10 * time.Second
	// maxBad bounds the bad ones, each of which keeps its certificate in memory.
	maxBad = 1024
	// maxPresented and maxPresentedBytes bound what a client presents. Each
	// certificate beyond the leaf multiplies the ways to a CA that have to be tried.
	maxPresented      = 5
	maxPresentedBytes = 16 << 10
)

func newVerifier(ca *caFile, size int) *verifier {
	return &verifier{
		ca: ca, verified: review.NewCache[certKey, verifiedCert](size), bad: review.NewCache[certKey, error](min(size, maxBad)),
	}
}

// verify checks that presented, which is not empty, leads to the CA and may be
// used by clients. identify makes of it, and of the chain that it was verified
// by, the identity that is returned and remembered.
func (v *verifier) verify(presented certificates, identify func(presented, chain certificates) (*Identity, error)) (*Identity, error) {
	ca := v.ca.current()
	key := certKey{leaf: presented[0], pool: ca.pool}
	if c, ok := v.verified.Get(key); ok && time.Now().Before(c.expires) {
		return c.identity, nil
	}
	if err, ok := v.bad.Get(key); ok {
		return nil, err
	}
	if len(presented) > maxPresented || presented.bytes() > maxPresentedBytes {
		return nil, fmt.Errorf("client certificate: more than %d certificates or %d bytes are presented", maxPresented, maxPresentedBytes)
	}
	c, err := check(presented, ca, identify)
	if err != nil {
		err = fmt.Errorf("client certificate: %w", err)
		v.bad.Put(key, err, v.bad.Generation(), badTTL, 0)
		return nil, err
	}
	v.verified.Put(key, c, v.verified.Generation(), verifiedTTL, 0)
	return c.identity, nil
}

// remembered is of how many certificates the verification is remembered.
func (v *verifier) remembered() int { return v.verified.Len() + v.bad.Len() }

// check verifies what verify remembers.
func check(presented certificates, ca *caCerts, identify func(presented, chain certificates) (*Identity, error)) (c verifiedCert, err error) {
	if !ca.named(presented) {
		// What verification would come to after it has tried all other ways.
		return c, x509.UnknownAuthorityError{Cert: presented[0]}
	}
	opts := x509.VerifyOptions{Roots: ca.pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if len(presented) > 1 {
		opts.Intermediates = x509.NewCertPool()
		for _, c := range presented[1:] {
			opts.Intermediates.AddCert(c)
		}
	}
	chains, err := presented[0].Verify(opts)
	if err != nil {
		return c, err
	}
	if c.identity, err = identify(presented, chains[0]); err != nil {
		return c, err
	}
	c.expires = firstExpiry(chains[0])
	return c, nil
}

// named reports whether one of the CAs is the issuer that some certificate of
// presented names, or is the leaf itself. No chain leads to a CA otherwise, and
// whether one does can be seen without checking a signature.
func (c *caCerts) named(presented certificates) bool {
	for _, ca := range c.certs {
		if ca.Equal(presented[0]) {
			return true
		}
		for _, p := range presented {
			if bytes.Equal(ca.RawSubject, p.RawIssuer) {
				return true
			}
		}
	}
	return false
}

func (c certificates) bytes() (n int) {
	for _, cert := range c {
		n += len(cert.Raw)
	}
	return n
}

func firstExpiry(chain certificates) time.Time {
	first := chain[0].NotAfter
	for _, c := range chain[1:] {
		if c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	return first
}
