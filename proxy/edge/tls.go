package edge

import (
	"crypto/tls"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/prometheus/client_golang/prometheus"
)

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

// registerCertificate shows how long the serving certificate is valid. 0 is none.
func registerCertificate(r prometheus.Registerer, get getCertificate) {
	gaugefunc.Register(r, "kubeweir_serving_certificate_expiry_timestamp_seconds", "Time at which the serving certificate expires.", func() int64 {
		cert, err := get(&tls.ClientHelloInfo{})
		if err != nil || cert.Leaf == nil {
			return 0
		}
		return cert.Leaf.NotAfter.Unix()
	})
}
