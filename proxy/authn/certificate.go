package authn

import (
	"crypto/x509"
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/proxy/review"
)

const (
	// validTTL limits how long the verification of a leaf is cached, and with it how long the
	// certificate stays in memory after its connection is closed.
	validTTL = time.Minute
	// invalidTTL is how long an invalid certificate is cached; it may only not be valid yet.
	invalidTTL = 10 * time.Second
	// maxInvalid limits the invalid certificates in memory.
	maxInvalid = 1024
	// maxPresented and maxPresentedBytes limit what a client presents. Each certificate beyond the
	// leaf multiplies the ways to a CA that have to be tried.
	maxPresented      = 5
	maxPresentedBytes = 16 << 10
)

// verifier verifies client certificates against one CA file. The result is cached by the leaf,
// which crypto/tls parses once a connection, so that a request costs a lookup and not a signature
// check. The intermediates are not part of the key: whoever holds the leaf's private key presented
// them with it, once for the connection.
type verifier struct {
	ca    *caFile
	valid *review.Cache[certKey, validCert]
	// invalid is a cache of its own, because anybody can present an invalid certificate.
	invalid *review.Cache[certKey, error]
}

type certKey struct {
	leaf *x509.Certificate
	pool *x509.CertPool
}

// validCert is the result of verifying a leaf.
type validCert struct {
	identity *Identity // nil for a front proxy
	expires  time.Time // when the first certificate of the chain expires
}

func newVerifier(ca *caFile, size int) *verifier {
	return &verifier{
		ca: ca, valid: review.NewCache[certKey, validCert](size), invalid: review.NewCache[certKey, error](min(size, maxInvalid)),
	}
}

// verify checks that presented, which is not empty, leads to the CA and may be used by clients.
// identify makes the identity of it and of the verified chain; both are cached.
func (v *verifier) verify(presented certificates, identify func(presented, chain certificates) (*Identity, error)) (*Identity, error) {
	ca := v.ca.current()
	key := certKey{leaf: presented[0], pool: ca.pool}
	if c, ok := v.valid.Get(key); ok && time.Now().Before(c.expires) {
		return c.identity, nil
	}
	if err, ok := v.invalid.Get(key); ok {
		return nil, err
	}
	size := 0
	for _, cert := range presented {
		size += len(cert.Raw)
	}
	if len(presented) > maxPresented || size > maxPresentedBytes {
		return nil, fmt.Errorf("client certificate: more than %d certificates or %d bytes are presented", maxPresented, maxPresentedBytes)
	}
	chain, err := ca.verify(presented)
	var id *Identity
	if err == nil {
		id, err = identify(presented, chain)
	}
	if err != nil {
		err = fmt.Errorf("client certificate: %w", err)
		v.invalid.Put(review.Entry[certKey, error]{Key: key, Value: err, Added: v.invalid.Now(), TTL: invalidTTL})
		return nil, err
	}
	expires := chain[0].NotAfter
	for _, c := range chain[1:] {
		if c.NotAfter.Before(expires) {
			expires = c.NotAfter
		}
	}
	v.valid.Put(review.Entry[certKey, validCert]{Key: key, Value: validCert{id, expires}, Added: v.valid.Now(), TTL: validTTL})
	return id, nil
}

// cached returns how many certificates are cached.
func (v *verifier) cached() int { return v.valid.Len() + v.invalid.Len() }

// verify returns a chain from presented to one of the CAs.
func (c *caCerts) verify(presented certificates) (certificates, error) {
	opts := x509.VerifyOptions{Roots: c.pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if len(presented) > 1 {
		opts.Intermediates = x509.NewCertPool()
		for _, cert := range presented[1:] {
			opts.Intermediates.AddCert(cert)
		}
	}
	chains, err := presented[0].Verify(opts)
	if err != nil {
		return nil, err
	}
	return chains[0], nil
}
