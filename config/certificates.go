package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"strings"

	"k8s.io/client-go/util/keyutil"
)

// certFile is a setting that names a PEM file.
type certFile struct{ path, file string }

// checkCAs checks that files contain certificates. checkFiles checks that they can be read.
func checkCAs(o *origins, files ...certFile) {
	for _, f := range files {
		if content := readPEM(o, f.file); content != nil {
			o.checkCertificates(f, content)
		}
	}
}

// checkPair checks that a certificate and a key are set together and belong together.
func checkPair(o *origins, cert, key certFile) {
	switch {
	case cert.file != "" && key.file == "":
		o.report(cert.path, "is set without %s; give both or none", o.name(key.path))
	case cert.file == "" && key.file != "":
		o.report(key.path, "is set without %s; give both or none", o.name(cert.path))
	}
	certPEM, keyPEM := readPEM(o, cert.file), readPEM(o, key.file)
	if certPEM == nil || !o.checkCertificates(cert, certPEM) || keyPEM == nil {
		return
	}
	if _, err := tls.X509KeyPair(certPEM, keyPEM); err != nil {
		o.report(key.path, "must be the file of the private key of %s, in PEM, and %s is not: %s", shownPath(cert.file), shownPath(key.file), plainTLSError(err))
	}
}

// readPEM reads a file. It returns nil if there is nothing to check. It does not read files that
// are not regular, such as a shell's <(...), because they can be read only once.
func readPEM(o *origins, file string) []byte {
	if file == "" || o.elsewhere {
		return nil
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return content
}

// checkCertificates reports a file that has no certificate, or an unreadable one.
func (o *origins) checkCertificates(f certFile, content []byte) bool {
	err := errors.New("it has none")
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err = x509.ParseCertificate(block.Bytes); err != nil {
			break
		}
	}
	if err != nil {
		o.report(f.path, "must be a file of certificates in PEM, and %s is not: %s", shownPath(f.file), plainTLSError(err))
	}
	return err == nil
}

// checkKeys checks files of keys of service account tokens: the private key, and public ones.
func checkKeys(o *origins, private certFile, public ...certFile) {
	if content := readPEM(o, private.file); content != nil {
		if _, err := keyutil.ParsePrivateKeyPEM(content); err != nil {
			o.report(private.path, "must be a file of a private key in PEM, and %s is not", shownPath(private.file))
		}
	}
	for _, f := range public {
		if content := readPEM(o, f.file); content != nil {
			if _, err := keyutil.ParsePublicKeysPEM(content); err != nil {
				o.report(f.path, "must be a file of public keys or certificates in PEM, and %s is not", shownPath(f.file))
			}
		}
	}
}

// plainTLSError returns the text of a TLS error without its package prefix.
func plainTLSError(err error) string {
	text := err.Error()
	for _, prefix := range []string{"tls: ", "x509: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}
