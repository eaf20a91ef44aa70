package app

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

	"github.com/kubeweir/kubeweir/config"
)

// certificateCheck is how often, at most, a handshake looks at the certificate files.
const certificateCheck = 5 * time.Second

// fileCertificate is a pair of files that is read again when it changes. It is safe for concurrent
// use.
type fileCertificate struct {
	certFile, keyFile string
	now               func() time.Time
	log               *slog.Logger
	reloads           *prometheus.CounterVec // by result

	current atomic.Pointer[tls.Certificate]

	// mu lets one handshake at a time look; the others go on with current. It guards what follows.
	mu sync.Mutex
	// checked is when the files were last read, seen what was in them then, valid
	// pair or not, so that an invalid one is logged once.
	checked           time.Time
	seenCert, seenKey []byte
}

// servingFiles returns what reads the serving certificate of the settings, nil if they name none.
// The files must be valid at first.
func servingFiles(t *config.TLS, now func() time.Time, log *slog.Logger, r prometheus.Registerer) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
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
	return f.certificate, f.load()
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
		f.reloads.WithLabelValues("error").Inc()
		f.log.Error("serving certificate changed but cannot be used, keeping the old one",
			"certFile", f.certFile, "keyFile", f.keyFile, "error", err)
	default:
		f.reloads.WithLabelValues("ok").Inc()
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
