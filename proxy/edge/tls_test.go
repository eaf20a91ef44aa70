package edge_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

func TestCertificateFiles(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	cert, key := edge.SelfSigned(t, "localhost")
	if err := os.WriteFile(certFile, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keyFile, key, 0o600); err != nil {
		t.Fatal(err)
	}
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("x") },
		func(o *edge.Options) { o.CertFile, o.KeyFile = certFile, keyFile })
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	nc, err := tls.Dial("tcp", ts.Secure, &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.Close()
}

func TestPeerCertificates(t *testing.T) {
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if len(r.PeerCertificates) == 0 {
			return edgetest.Text("nobody")
		}
		return edgetest.Text(r.PeerCertificates[0].Subject.CommonName)
	})
	cert, key := edge.SelfSigned(t, "alice")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, h2 := range []bool{false, true} {
		for _, with := range []bool{false, true} {
			c := ts.Client(h2)
			tr := c.Transport.(*http.Transport)
			tr.DisableKeepAlives = !h2
			tr.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(10)
			want := "nobody"
			if with {
				tr.TLSClientConfig.Certificates = []tls.Certificate{pair}
				want = "alice"
			}
			for range 2 {
				resp, err := c.Get("https://" + ts.Secure)
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
	cert, key := edge.SelfSigned(t, "localhost")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	ts := edgetest.Start(t, func(context.Context, *api.Request) *api.Response { return edgetest.Text("x") },
		func(o *edge.Options) {
			o.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
		})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	nc, err := tls.Dial("tcp", ts.Secure, &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.Close()
	if _, err := edgetest.NewServer(edge.Options{Handler: ts.Options.Handler, CertFile: "x", KeyFile: "y", GetCertificate: ts.Options.GetCertificate}); err == nil {
		t.Errorf("both kinds: %v", err)
	}
}
