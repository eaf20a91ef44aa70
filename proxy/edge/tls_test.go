package edge_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge"
)

func TestPeerCertificates(t *testing.T) {
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		if len(r.PeerCertificates) == 0 {
			return edgetest.Text("nobody")
		}
		return edgetest.Text(r.PeerCertificates[0].Subject.CommonName)
	})
	cert, key := selfSigned(t, "alice")
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
	cert, key := selfSigned(t, "localhost")
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
