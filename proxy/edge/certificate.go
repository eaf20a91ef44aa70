package edge

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// certificateCheck is how often, at most, a handshake looks at the certificate files.
const certificateCheck = 5 * time.Second

// getCertificate returns the serving certificate for a handshake.
type getCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// tlsConfig is the configuration of the TLS listener. Clients are requested to send a certificate,
// which is passed on; whether it is trusted is decided by the handler.
func tlsConfig(get getCertificate, minVersion uint16, suites []uint16) *tls.Config {
	return &tls.Config{
		MinVersion:     max(minVersion, tls.VersionTLS12),
		CipherSuites:   suites,
		NextProtos:     []string{"h2", "http/1.1"},
		ClientAuth:     tls.RequestClientCert,
		GetCertificate: get,
		// Small records at the start of a connection are for browsers that render
		// while they load; here they only cost system calls.
		DynamicRecordSizingDisabled: true,
	}
}

// fileCertificate is a pair of files that is read again when it changes. It is safe for concurrent
// use.
type fileCertificate struct {
	certFile, keyFile string
	now               func() time.Time
	log               *slog.Logger
	metrics           *Metrics

	current atomic.Pointer[tls.Certificate]

	// mu lets one handshake at a time look; the others go on with current. It guards what follows.
	mu sync.Mutex
	// checked is when the files were last read, seen what was in them then, valid
	// pair or not, so that an invalid one is logged once.
	checked           time.Time
	seenCert, seenKey []byte
}

// newFileCertificate reads the pair, which must be valid at first.
func newFileCertificate(certFile, keyFile string, now func() time.Time, log *slog.Logger, m *Metrics) (*fileCertificate, error) {
	f := &fileCertificate{certFile: certFile, keyFile: keyFile, now: now, log: log, metrics: m, checked: now()}
	return f, f.load()
}

func (f *fileCertificate) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if f.mu.TryLock() {
		f.check()
		f.mu.Unlock()
	}
	return f.current.Load(), nil
}

// check reads the files again when it is time. The caller holds mu.
func (f *fileCertificate) check() {
	now := f.now()
	if now.Sub(f.checked) < certificateCheck {
		return
	}
	f.checked = now
	err := f.load()
	switch {
	case errors.Is(err, errUnchanged):
	case err != nil:
		f.metrics.certificates.WithLabelValues("error").Inc()
		f.log.Error("serving certificate changed but cannot be used, keeping the old one",
			"certFile", f.certFile, "keyFile", f.keyFile, "error", err)
	default:
		f.metrics.certificates.WithLabelValues("ok").Inc()
		f.log.Info("serving certificate reloaded", "certFile", f.certFile, "notAfter", f.current.Load().Leaf.NotAfter)
	}
}

var errUnchanged = errors.New("unchanged")

// load reads the pair and makes it current, or returns errUnchanged when the
// files hold what they held at the last look. The caller holds mu.
func (f *fileCertificate) load() error {
	cert, err := os.ReadFile(f.certFile)
	if err != nil {
		cert = []byte(err.Error()) // a missing file is a state like any other
	}
	key, keyErr := os.ReadFile(f.keyFile)
	if keyErr != nil {
		key = []byte(keyErr.Error())
	}
	if f.seenCert != nil && bytes.Equal(cert, f.seenCert) && bytes.Equal(key, f.seenKey) {
		return errUnchanged
	}
	f.seenCert, f.seenKey = cert, key
	if err := errors.Join(err, keyErr); err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("serving certificate %q with key %q: %w", f.certFile, f.keyFile, err)
	}
	f.current.Store(&pair)
	return nil
}

// registerCertificate shows how long the serving certificate is valid. 0 is none.
func registerCertificate(r prometheus.Registerer, get getCertificate) {
	registerGauge(r, "kubeweir_serving_certificate_expiry_timestamp_seconds", "When the serving certificate ends.", func() float64 {
		cert, err := get(&tls.ClientHelloInfo{})
		if err != nil || cert.Leaf == nil {
			return 0
		}
		return float64(cert.Leaf.NotAfter.Unix())
	})
}
