package authn

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
