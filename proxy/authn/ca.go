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

// caReload is how often a CA file is read again. Reading a few KiB is cheaper than watching the
// file, and notices every way in which a file can be replaced.
const caReload = 5 * time.Second

// caFile holds the certificates of a CA file and follows the file: current reads it again at most
// every caReload. An invalid file leaves the certificates of the last valid one in force. It is
// safe for concurrent use.
type caFile struct {
	path  string // "" for only the fixed certificates
	fixed []byte // PEM, in force whatever the file holds
	log   *slog.Logger
	start time.Time    // zero of the clock of next
	next  atomic.Int64 // when to read the file again, in nanoseconds
	now   atomic.Pointer[caCerts]

	mu      sync.Mutex // held while reading
	content []byte     // as last read, valid or not; guarded by mu
}

// caCerts are the certificates of one reading. They are immutable.
type caCerts struct {
	certs []*x509.Certificate
	pool  *x509.CertPool
}

// openCAFile reads path, which must be valid. The fixed certificates, in PEM, are added to those of
// the file; without a path there are no others.
func openCAFile(path string, fixed []byte, log *slog.Logger) (*caFile, error) {
	f := &caFile{path: path, fixed: fixed, log: log, start: time.Now()}
	content, err := f.read()
	if err == nil {
		var certs *caCerts
		certs, err = f.parse(content)
		f.now.Store(certs)
	}
	if err != nil {
		return nil, fmt.Errorf("reading CA certificates: %w", err)
	}
	f.content = content
	f.next.Store(int64(caReload))
	return f, nil
}

func (f *caFile) read() ([]byte, error) {
	if f.path == "" {
		return nil, nil
	}
	return os.ReadFile(f.path)
}

// parse returns the fixed certificates and those of the file. A file without certificates is an
// error, even with fixed ones.
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
	now := int64(time.Since(f.start))
	if next := f.next.Load(); now >= next && f.next.CompareAndSwap(next, now+int64(caReload)) {
		f.reload()
	}
	return f.now.Load()
}

// reload reads the file and puts its certificates in force if it changed and is valid.
func (f *caFile) reload() {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, err := f.read()
	if err == nil && bytes.Equal(content, f.content) {
		return
	}
	var certs *caCerts
	if err == nil {
		f.content = content // so that an invalid file is logged once
		certs, err = f.parse(content)
	}
	if err != nil {
		f.log.Error("CA file invalid, keeping the certificates in force", "file", f.path, "error", err)
		return
	}
	f.now.Store(certs)
	f.log.Info("CA file reloaded", "file", f.path)
}
