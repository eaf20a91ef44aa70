package pool

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Rotator renews pools when a certificate file changes. kube-apiserver checks the certificate of a
// connection with every request, so requests on an old connection would fail once it expires.
type Rotator struct {
	factory *Factory
	pools   func() []*Pool
	log     *slog.Logger
	reloads *prometheus.CounterVec // by result
	seen    [sha256.Size]byte
}

// NewRotator returns a rotator of pools.
func NewRotator(f *Factory, pools func() []*Pool, log *slog.Logger, reloads *prometheus.CounterVec) (*Rotator, error) {
	seen, err := fingerprint(f.files())
	if err != nil {
		return nil, fmt.Errorf("upstream TLS: %w", err)
	}
	return &Rotator{factory: f, pools: pools, log: log, reloads: reloads, seen: seen}, nil
}

// Run checks the files periodically until ctx ends. client-go reads token files itself.
func (r *Rotator) Run(ctx context.Context) {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.Check()
		}
	}
}

// Check renews the pools if a file changed.
func (r *Rotator) Check() {
	sum, err := fingerprint(r.factory.files())
	if err == nil && sum == r.seen {
		return
	}
	if err == nil {
		err = r.renew()
	}
	if err != nil {
		// Files are often replaced one by one: the next check will find both.
		r.reloads.WithLabelValues("error").Inc()
		r.log.Warn("changed upstream certificates are not used", "error", err)
		return
	}
	r.seen = sum
	r.reloads.WithLabelValues("ok").Inc()
	r.log.Info("upstream certificates reloaded")
}

func (r *Rotator) renew() error {
	if c := &r.factory.own.TLS; c.CertFile != "" && len(c.CertData) == 0 {
		if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
			return fmt.Errorf("client certificate: %w", err)
		}
	}
	for _, p := range r.pools() {
		if err := p.Renew(); err != nil {
			return err
		}
	}
	return nil
}

// files returns the certificate files in use: contents given inline win.
func (f *Factory) files() (files []string) {
	tls := &f.own.TLS
	if tls.CAFile != "" && len(tls.CAData) == 0 {
		files = append(files, tls.CAFile)
	}
	if tls.CertFile != "" && len(tls.CertData) == 0 && tls.KeyFile != "" && len(tls.KeyData) == 0 {
		files = append(files, tls.CertFile, tls.KeyFile)
	}
	return files
}

func fingerprint(files []string) (sum [sha256.Size]byte, err error) {
	hash := sha256.New()
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			return sum, err
		}
		fmt.Fprintf(hash, "%d\n", len(content))
		hash.Write(content)
	}
	hash.Sum(sum[:0])
	return sum, nil
}
