package identity

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/cert"
)

// caReload is how often a CA file is read again. Reading a few KiB is cheaper
// than being told of changes, and sees every way in which a file can be replaced.
const caReload = 5 * time.Second

// caFile is a file of CA certificates that follows its file: a use of the pool
// more than caReload after the last reading reads the file again. A file that
// cannot be used leaves the certificates of the last good one in force.
//
// It is safe for concurrent use.
type caFile struct {
	path  string // "" for only the fixed ones
	fixed []byte // PEM, in force whatever is in the file
	log   *slog.Logger
	base  time.Time    // the clock of next counts from here
	next  atomic.Int64 // when to read the file again, in nanoseconds
	now   atomic.Pointer[caCerts]

	mu      sync.Mutex // held while reading
	content []byte     // of the last reading, good or bad; guarded by mu
}

// caCerts are the certificates of one reading, in both forms. They are immutable.
type caCerts struct {
	certs []*x509.Certificate
	pool  *x509.CertPool
}

// openCAFile reads path for the first time, which must succeed. The fixed
// certificates, in PEM, are added to those of the file; without a path they are all.
func openCAFile(path string, fixed []byte, log *slog.Logger) (*caFile, error) {
	f := &caFile{path: path, fixed: fixed, log: log, base: time.Now()}
	content, err := f.read()
	if err != nil {
		return nil, fmt.Errorf("reading CA certificates: %w", err)
	}
	certs, err := f.parse(content)
	if err != nil {
		return nil, fmt.Errorf("reading CA certificates: %w", err)
	}
	f.content = content
	f.now.Store(certs)
	f.next.Store(int64(caReload))
	return f, nil
}

// read returns what the file has.
func (f *caFile) read() ([]byte, error) {
	if f.path == "" {
		return nil, nil
	}
	return os.ReadFile(f.path)
}

// parse returns the fixed certificates and those that the file has. A file without any is an error, whatever is fixed.
func (f *caFile) parse(content []byte) (*caCerts, error) {
	var all []*x509.Certificate
	if len(f.fixed) > 0 {
		certs, err := cert.ParseCertsPEM(f.fixed)
		if err != nil {
			return nil, err
		}
		all = certs
	}
	if f.path != "" {
		certs, err := cert.ParseCertsPEM(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		all = append(all, certs...)
	}
	return newCACerts(all), nil
}

func newCACerts(certs []*x509.Certificate) *caCerts {
	c := &caCerts{certs: certs, pool: x509.NewCertPool()}
	for _, cert := range certs {
		c.pool.AddCert(cert)
	}
	return c
}

// current returns the certificates in force.
func (f *caFile) current() *caCerts {
	now := int64(time.Since(f.base))
	if next := f.next.Load(); now >= next && f.next.CompareAndSwap(next, now+int64(caReload)) {
		f.reload()
	}
	return f.now.Load()
}

// reload reads the file and takes it over if it changed for the good.
func (f *caFile) reload() {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, err := f.read()
	if err == nil && bytes.Equal(content, f.content) {
		return
	}
	var certs *caCerts
	if err == nil {
		f.content = content // a bad file is complained of once
		certs, err = f.parse(content)
	}
	if err != nil {
		f.log.Error("CA file cannot be used, keeping the certificates in force", "file", f.path, "error", err)
		return
	}
	f.now.Store(certs)
	f.log.Info("CA file reloaded", "file", f.path)
}

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
	verified *ttlCache[certKey, verifiedCert]
	// bad is apart, because anybody can present what is no good.
	bad *ttlCache[certKey, error]
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
		ca: ca, verified: newTTLCache[certKey, verifiedCert](size), bad: newTTLCache[certKey, error](min(size, maxBad)),
	}
}

// verify checks that presented, which is not empty, leads to the CA and may be
// used by clients. identify makes of it, and of the chain that it was verified
// by, the identity that is returned and remembered.
func (v *verifier) verify(presented certificates, identify func(presented, chain certificates) (*Identity, error)) (*Identity, error) {
	ca := v.ca.current()
	key := certKey{leaf: presented[0], pool: ca.pool}
	if c, ok := v.verified.get(key); ok && time.Now().Before(c.expires) {
		return c.identity, nil
	}
	if err, ok := v.bad.get(key); ok {
		return nil, err
	}
	if len(presented) > maxPresented || presented.bytes() > maxPresentedBytes {
		return nil, fmt.Errorf("client certificate: more than %d certificates or %d bytes are presented", maxPresented, maxPresentedBytes)
	}
	c, err := check(presented, ca, identify)
	if err != nil {
		err = fmt.Errorf("client certificate: %w", err)
		v.bad.put(key, err, v.bad.generation(), badTTL, 0)
		return nil, err
	}
	v.verified.put(key, c, v.verified.generation(), verifiedTTL, 0)
	return c.identity, nil
}

// remembered is of how many certificates the verification is remembered.
func (v *verifier) remembered() int { return v.verified.len() + v.bad.len() }

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
