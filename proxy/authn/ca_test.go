package authn

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// counting counts how often a chain came through verification.
func counting(n *int) func(presented, chain certificates) (*Identity, error) {
	return func(_, _ certificates) (*Identity, error) { *n++; return nil, errors.New("nobody") }
}

func verifierOf(t *testing.T, ca *testCA) *verifier {
	t.Helper()
	a, err := New(Options{ClientCAs: ca.pem(), Settings: review.Settings{CacheSize: 100}})
	if err != nil {
		t.Fatal(err)
	}
	return a.clientCerts
}

// TestBadCertificatesAreVerifiedOnce: a certificate is verified once a connection, also
// if it is invalid, and again after a while.
func TestBadCertificatesAreVerifiedOnce(t *testing.T) {
	ca := newTestCA(t, "ca")
	bob := ca.client(pkix.Name{CommonName: "bob"})
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(bob[0].NotBefore.Add(time.Hour))) // synctest begins in 2000
		v := verifierOf(t, ca)
		verifications := 0
		for range 100 {
			if _, err := v.verify(bob, counting(&verifications)); err == nil {
				t.Fatal("good")
			}
		}
		if verifications != 1 {
			t.Errorf("%d verifications on one connection, want 1", verifications)
		}
		time.Sleep(invalidTTL)
		_, _ = v.verify(bob, counting(&verifications))
		if verifications != 2 {
			t.Errorf("%d verifications, want another one after %v", verifications, invalidTTL)
		}
	})
}

// TestBadCertificatesAreBounded: clients choose neither the number of invalid certificates in memory
// nor the length of a chain.
func TestBadCertificatesAreBounded(t *testing.T) {
	ca, other := newTestCA(t, "ca"), newTestCA(t, "other")
	v := verifierOf(t, ca)
	stranger := other.client(pkix.Name{CommonName: "bob"})[0]
	for range 3 * maxInvalid {
		leaf := *stranger
		if _, err := v.verify(certificates{&leaf}, identityOfCertificate); !errors.As(err, &x509.UnknownAuthorityError{}) {
			t.Fatal(err)
		}
	}
	if n := v.cached(); n > maxInvalid {
		t.Errorf("%d invalid certificates are cached", n)
	}
	bob := ca.client(pkix.Name{CommonName: "bob"})
	for range maxPresented {
		bob = append(bob, other.cert)
	}
	if _, err := v.verify(bob, identityOfCertificate); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a chain of %d certificates: %v", len(bob), err)
	}
	if _, err := v.verify(bob[:maxPresented], identityOfCertificate); err != nil {
		t.Errorf("a chain of %d certificates: %v", maxPresented, err)
	}
}

// TestChainsThroughIntermediates: every order of a chain that leads to a CA is accepted.
func TestChainsThroughIntermediates(t *testing.T) {
	root := newTestCA(t, "root")
	middle := &testCA{t: t, key: newKey(t)}
	middle.cert = sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "middle"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, root.cert, middle.key, root.key)
	bob := middle.client(pkix.Name{CommonName: "bob"})
	for _, test := range []struct {
		name      string
		ca        *testCA
		presented certificates
		good      bool
	}{
		{"with the intermediate", root, certificates{bob[0], middle.cert}, true},
		{"in another order", root, certificates{bob[0], root.cert, middle.cert}, true},
		{"without the intermediate", root, bob, false},
		{"the intermediate is the CA", middle, bob, true},
		{"the leaf is the CA", &testCA{t: t, cert: bob[0]}, bob, true},
		{"another CA", newTestCA(t, "other"), certificates{bob[0], middle.cert}, false},
		{"another CA of the same name", newTestCA(t, "root"), certificates{bob[0], middle.cert}, false},
	} {
		if _, err := verifierOf(t, test.ca).verify(test.presented, identityOfCertificate); (err == nil) != test.good {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestUnexpectedCertificateIsExplained: an operator who forgot --client-ca-file is
// told once what the clients' 401 means.
func TestUnexpectedCertificateIsExplained(t *testing.T) {
	var log bytes.Buffer
	a, err := New(Options{Settings: review.Settings{Log: slog.New(slog.NewTextHandler(&log, nil))}})
	if err != nil {
		t.Fatal(err)
	}
	bob := newTestCA(t, "ca").client(pkix.Name{CommonName: "bob"})
	for range 10 {
		if _, err := a.Authenticate(t.Context(), &api.Request{PeerCertificates: bob}); !errors.Is(err, ErrUnauthenticated) {
			t.Fatal(err)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "--client-ca-file") || !strings.Contains(got, "bob") {
		t.Errorf("log: %s", got)
	}
}

// TestFixedCAsDoNotHideABadFile: a file without certificates is refused at first, and later leaves those in force that it
// had, whatever CAs are there besides.
func TestFixedCAsDoNotHideABadFile(t *testing.T) {
	fixed, own := newTestCA(t, "fixed"), newTestCA(t, "own")
	log := slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "ca.crt")
	write := func(content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write([]byte("no PEM"))
	if _, err := openCAFile(path, fixed.pem(), log); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file without certificates: %v", err)
	}
	write(own.pem())
	f, err := openCAFile(path, fixed.pem(), log)
	if err != nil || len(f.current().certs) != 2 {
		t.Fatalf("%v", err)
	}
	write([]byte("no PEM any more"))
	f.reload()
	if n := len(f.current().certs); n != 2 {
		t.Errorf("%d certificates are in force, want the 2 of before", n)
	}
}
