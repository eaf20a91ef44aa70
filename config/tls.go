package config

import (
	"crypto/tls"
	"slices"
	"strings"
)

// TLS configures the certificate and the protocol of the API's listener. Set both files or none;
// without files a certificate is generated. The files are read again when they change.
type TLS struct {
	CertFile       string     `json:"certFile"`
	PrivateKeyFile string     `json:"privateKeyFile"`
	MinVersion     TLSVersion `json:"minVersion"`
	CipherSuites   []string   `json:"cipherSuites"`
}

// TLSVersion is a version of TLS by kube-apiserver's name for it.
type TLSVersion string

// The versions. kube-apiserver accepts older ones, which are deprecated (RFC 8996).
const (
	TLS12 TLSVersion = "VersionTLS12"
	TLS13 TLSVersion = "VersionTLS13"
)

func (TLSVersion) choices() []string { return []string{string(TLS12), string(TLS13)} }

// ID returns the version number of crypto/tls.
func (v TLSVersion) ID() uint16 {
	if v == TLS13 {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}

// CipherSuiteIDs returns the crypto/tls IDs of CipherSuites, or nil for Go's defaults.
func (t *TLS) CipherSuiteIDs() []uint16 {
	var ids []uint16
	for _, name := range t.CipherSuites {
		if suite := cipherSuite(name); suite != nil {
			ids = append(ids, suite.ID)
		}
	}
	return ids
}

// cipherSuite returns the cipher suite of a name; nil for one that does not exist, is
// insecure, or belongs to TLS 1.3.
func cipherSuite(name string) *tls.CipherSuite {
	// Before Go 1.14 these two had shorter names, which kube-apiserver still takes.
	if strings.HasSuffix(name, "_WITH_CHACHA20_POLY1305") {
		name += "_SHA256"
	}
	suites := cipherSuites()
	if i := slices.IndexFunc(suites, func(s *tls.CipherSuite) bool { return s.Name == name }); i >= 0 {
		return suites[i]
	}
	return nil
}

// cipherSuites returns the cipher suites that a setting may name.
func cipherSuites() []*tls.CipherSuite {
	return slices.DeleteFunc(tls.CipherSuites(), func(s *tls.CipherSuite) bool {
		return !slices.Contains(s.SupportedVersions, tls.VersionTLS12)
	})
}

func checkTLS(o *origins, t *TLS) {
	checkPair(o, certFile{"tls.certFile", t.CertFile}, certFile{"tls.privateKeyFile", t.PrivateKeyFile})
	for _, name := range t.CipherSuites {
		if cipherSuite(name) != nil {
			continue
		}
		var known []string
		for _, s := range cipherSuites() {
			known = append(known, s.Name)
		}
		o.report("tls.cipherSuites", "has no cipher suite of TLS 1.2 that is called %q; there are %s", name, strings.Join(known, ", "))
		return
	}
}
