package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/config"
)

// certificateCheck is the minimum time between checks of the certificate files, which handshakes trigger.
const certificateCheck = 5 * time.Second

// fileCertificate is a pair of files that is reloaded when it changes. It is safe for concurrent use.
type fileCertificate struct {
	certFile, keyFile string
	now               func() time.Time
	log               *slog.Logger
	reloads           *prometheus.CounterVec // by result
	current           atomic.Pointer[tls.Certificate]

	// mu lets one handshake at a time check; the others use current. It guards the rest.
	mu      sync.Mutex
	checked time.Time
	seen    [sha256.Size]byte // the contents at the last check, valid or not, so that errors are logged once
}

// Files returns a source of the serving certificate in the files of t, nil if t names none. The
// files must be valid at the start.
func Files(t *config.TLS, now func() time.Time, log *slog.Logger, r prometheus.Registerer) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	reloads := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubeweir_serving_certificate_reloads_total",
		Help: "Reloads of the serving certificate files, by result: ok, error.",
	}, []string{"result"})
	for _, result := range [...]string{"ok", "error"} {
		reloads.WithLabelValues(result) // so that the first is a change, too
	}
	if r != nil {
		r.MustRegister(reloads)
	}
	if t.CertFile == "" {
		return nil, nil
	}
	f := &fileCertificate{certFile: t.CertFile, keyFile: t.PrivateKeyFile, now: now, log: log, reloads: reloads, checked: now()}
	_, err := f.load()
	return f.certificate, err
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
	switch changed, err := f.load(); {
	case err != nil:
		f.reloads.WithLabelValues("error").Inc()
		f.log.Error("serving certificate invalid, keeping the old one", "certFile", f.certFile, "keyFile", f.keyFile, "error", err)
	case changed:
		f.reloads.WithLabelValues("ok").Inc()
		f.log.Info("serving certificate reloaded", "certFile", f.certFile, "notAfter", f.current.Load().Leaf.NotAfter)
	}
}

// load reads the files and makes them current if they have changed and are valid. The caller holds mu.
func (f *fileCertificate) load() (changed bool, err error) {
	cert, certErr := os.ReadFile(f.certFile)
	key, keyErr := os.ReadFile(f.keyFile)
	err = errors.Join(certErr, keyErr)
	digest := sha256.Sum256(fmt.Appendf(nil, "%q %q %v", cert, key, err))
	if digest == f.seen {
		return false, nil
	}
	f.seen = digest
	if err != nil {
		return true, fmt.Errorf("serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return true, fmt.Errorf("serving certificate %q with key %q: %w", f.certFile, f.keyFile, err)
	}
	f.current.Store(&pair)
	return true, nil
}
