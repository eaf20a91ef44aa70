package edge

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/api"
)

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
	m := newMetrics(nil)
	f, err := newFileCertificate(certFile, keyFile, func() time.Time { return now }, slog.New(slog.NewTextHandler(&log, nil)), m)
	if err != nil {
		t.Fatal(err)
	}
	want := func(name, logged string) {
		t.Helper()
		pair, err := f.certificate()
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

func TestCertificateFiles(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	cert, key := selfSigned(t, "localhost")
	if err := os.WriteFile(certFile, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keyFile, key, 0o600); err != nil {
		t.Fatal(err)
	}
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("x") },
		func(o *Options) { o.CertFile, o.KeyFile = certFile, keyFile })
	if ts.CAPEM() != nil {
		t.Error("a CA was generated")
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	nc, err := tls.Dial("tcp", ts.secure, &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.Close()
}

func TestGeneratedCertificate(t *testing.T) {
	now := time.Now()
	for host, also := range map[string]string{"": "", "0.0.0.0": "", "::": "", "kubeweir.example": "kubeweir.example", "192.0.2.7": "192.0.2.7", "localhost": ""} {
		g, err := newGeneratedCertificate(host, func() time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(g.caPEM) {
			t.Fatal("no CA")
		}
		first, _ := g.certificate()
		names := []string{"localhost", "127.0.0.1", "::1"}
		if also != "" {
			names = append(names, also)
		}
		for _, name := range names {
			if _, err := first.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name, CurrentTime: now}); err != nil {
				t.Errorf("%s for %s: %v", host, name, err)
			}
		}
		if got := len(first.Leaf.DNSNames) + len(first.Leaf.IPAddresses); got != len(names) {
			t.Errorf("%s: %d names", host, got)
		}
		if again, _ := g.certificate(); again != first {
			t.Error("a new certificate too soon")
		}
		later := now.Add(servingLifetime - renewBefore + time.Minute)
		g.now = func() time.Time { return later }
		renewed, _ := g.certificate()
		if renewed == first {
			t.Error("not renewed")
		}
		if _, err := renewed.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "localhost", CurrentTime: later}); err != nil {
			t.Error(err)
		}
	}
}

// TestPeerCertificates passes a client's certificate on, whoever signed it, also
// when the TLS session was resumed.
func TestPeerCertificates(t *testing.T) {
	ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
		if len(r.PeerCertificates) == 0 {
			return text("nobody")
		}
		return text(r.PeerCertificates[0].Subject.CommonName)
	})
	cert, key := selfSigned(t, "alice")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, h2 := range []bool{false, true} {
		for _, with := range []bool{false, true} {
			c := ts.client(h2)
			tr := c.Transport.(*http.Transport)
			tr.DisableKeepAlives = !h2
			tr.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(10)
			want := "nobody"
			if with {
				tr.TLSClientConfig.Certificates = []tls.Certificate{pair}
				want = "alice"
			}
			for range 2 {
				resp, err := c.Get("https://" + ts.secure)
				if err != nil {
					t.Fatal(err)
				}
				got := make([]byte, 10)
				n, _ := resp.Body.Read(got)
				_ = resp.Body.Close()
				if string(got[:n]) != want {
					t.Errorf("got %q, want %q", got[:n], want)
				}
			}
		}
	}
}

func TestGetCertificate(t *testing.T) {
	cert, key := selfSigned(t, "localhost")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	ts := startServer(t, func(context.Context, *api.Request) *api.Response { return text("x") },
		func(o *Options) {
			o.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
		})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	nc, err := tls.Dial("tcp", ts.secure, &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.Close()
	if _, err := newServer(Options{Handler: ts.o.Handler, CertFile: "x", KeyFile: "y", GetCertificate: ts.o.GetCertificate}); err == nil || ts.CAPEM() != nil {
		t.Errorf("both kinds: %v", err)
	}
}
