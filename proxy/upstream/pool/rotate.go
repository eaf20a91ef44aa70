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

// Rotator replaces the transports when a certificate file changes. kube-apiserver
// looks at the certificate of a connection with every request, so that those on
// an old connection would fail once it expires.
type Rotator struct {
	factory *Factory
	pools   func() []*Pool
	log     *slog.Logger
	reloads *prometheus.CounterVec
	seen    [sha256.Size]byte
}

// NewRotator returns one for pools, which counts in reloads; nil if f uses no files.
func NewRotator(f *Factory, pools func() []*Pool, log *slog.Logger, reloads *prometheus.CounterVec) (*Rotator, error) {
	files := f.files()
	if len(files) == 0 {
		return nil, nil
	}
	seen, err := fingerprint(files)
	if err != nil {
		return nil, fmt.Errorf("upstream TLS: %w", err)
	}
	return &Rotator{factory: f, pools: pools, log: log, reloads: reloads, seen: seen}, nil
}

// files are the certificate files that count: contents given inline win.
func (f *Factory) files() []string {
	var files []string
	tls := &f.own.TLS
	if tls.CAFile != "" && len(tls.CAData) == 0 {
		files = append(files, tls.CAFile)
	}
	if tls.CertFile != "" && len(tls.CertData) == 0 && tls.KeyFile != "" && len(tls.KeyData) == 0 {
		files = append(files, tls.CertFile, tls.KeyFile)
	}
	return files
}

// Run looks at the files at each tick until ctx ends.
func (r *Rotator) Run(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
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

// Check looks at the files once.
func (r *Rotator) Check() {
	sum, err := fingerprint(r.factory.files())
	if err == nil && sum == r.seen {
		return
	}
	if err == nil {
		err = r.reload()
	}
	if err != nil {
		// Files are often replaced one by one: the next look will find both.
		r.reloads.WithLabelValues("error").Inc()
		r.log.Warn("changed upstream certificates are not used", "error", err)
		return
	}
	r.seen = sum
	r.reloads.WithLabelValues("ok").Inc()
	r.log.Info("upstream certificates reloaded")
}

func (r *Rotator) reload() error {
	if c := &r.factory.own.TLS; c.CertFile != "" && len(c.CertData) == 0 {
		if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
			return fmt.Errorf("client certificate: %w", err)
		}
	}
	for _, p := range r.pools() {
		if _, err := p.Reload(); err != nil {
			return err
		}
	}
	return nil
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
