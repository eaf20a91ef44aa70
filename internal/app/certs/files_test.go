package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/config"
)

func TestCertificateReload(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func(file string, data []byte) {
		t.Helper()
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certA, keyA := selfSigned(t, "a")
	certB, keyB := selfSigned(t, "b")
	write(certFile, certA)
	write(keyFile, keyA)

	now := time.Now()
	var log bytes.Buffer
	files := &config.TLS{CertFile: certFile, PrivateKeyFile: keyFile}
	get, err := Files(files, func() time.Time { return now }, slog.New(slog.NewTextHandler(&log, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := func(name, logged string) {
		t.Helper()
		pair, err := get(nil)
		if err != nil || pair.Leaf.Subject.CommonName != name {
			t.Errorf("got %v %v, want %s", pair.Leaf.Subject, err, name)
		}
		if got := log.String(); (logged == "") != (got == "") || !strings.Contains(got, logged) {
			t.Errorf("logged %q, want %q", got, logged)
		}
		log.Reset()
	}
	want("a", "")
	write(certFile, certB) // half of a change
	want("a", "")          // not looked at yet
	now = now.Add(certificateCheck)
	want("a", "keeping the old one")
	now = now.Add(certificateCheck)
	want("a", "") // said once
	write(keyFile, keyB)
	now = now.Add(certificateCheck)
	want("b", "reloaded")
	now = now.Add(certificateCheck)
	want("b", "")
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	now = now.Add(certificateCheck)
	want("b", "keeping the old one")
	write(certFile, certA)
	write(keyFile, keyA)
	now = now.Add(certificateCheck)
	want("a", "reloaded")
	write(certFile, []byte("nonsense"))
	now = now.Add(certificateCheck)
	want("a", "keeping the old one")
}

// selfSigned is a certificate with its key, PEM.
func selfSigned(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func TestCertificateFilesMustBeThere(t *testing.T) {
	none := &config.TLS{CertFile: "no-such-file", PrivateKeyFile: "no-such-file"}
	if _, err := Files(none, time.Now, slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(), "no-such-file") {
		t.Errorf("got %v", err)
	}
	if get, err := Files(&config.TLS{}, time.Now, slog.New(slog.DiscardHandler), nil); get != nil || err != nil {
		t.Errorf("without files: %v", err)
	}
}
