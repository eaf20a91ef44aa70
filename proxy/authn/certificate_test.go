package authn

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/proxy/review"
)

func TestCAFileIsFollowed(t *testing.T) {
	old, young := newTestCA(t, "old"), newTestCA(t, "young")
	path := old.file()
	write := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bob, carol := old.client(pkix.Name{CommonName: "bob"}), young.client(pkix.Name{CommonName: "carol"})
	a, err := New(Options{ClientCAFile: path})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, bobOK, carolOK bool) {
		t.Helper()
		a.clientCerts.ca.next.Store(0) // caReload has passed
		for _, c := range []struct {
			certs []*x509.Certificate
			ok    bool
		}{{bob, bobOK}, {carol, carolOK}} {
			_, err := a.Authenticate(t.Context(), &api.Request{PeerCertificates: c.certs})
			if (err == nil) != c.ok {
				t.Errorf("%s: %s: err = %v, want ok = %v", when, c.certs[0].Subject.CommonName, err, c.ok)
			}
		}
	}
	expect("first", true, false)
	write(append(old.pem(), young.pem()...))
	expect("both", true, true)
	write([]byte("garbage"))
	expect("garbage keeps both", true, true)
	write(young.pem())
	expect("young", false, true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("removed keeps young", false, true)
}

func TestCertificateExpires(t *testing.T) {
	ca := newTestCA(t, "ca")
	a, err := New(Options{ClientCAFile: ca.file()})
	if err != nil {
		t.Fatal(err)
	}
	v := a.clientCerts
	bob := ca.client(pkix.Name{CommonName: "bob"})
	id, err := v.verify(bob, identityOfCertificate)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := v.verify(bob, identityOfCertificate); again != id {
		t.Error("verified again within the minute")
	}
	key := certKey{leaf: bob[0], pool: v.ca.current().pool}
	v.valid.Put(review.Entry[certKey, validCert]{Key: key, Value: validCert{identity: id, expires: time.Now()}, Added: v.valid.Now(), TTL: time.Hour})
	if again, _ := v.verify(bob, identityOfCertificate); again == id {
		t.Error("an expired certificate was taken from memory")
	}
}

func TestBadCAFile(t *testing.T) {
	ca := newTestCA(t, "ca")
	for _, opts := range []Options{
		{ClientCAFile: "/does/not/exist"},
		{ClientCAFile: ca.file(), RequestHeader: RequestHeaderOptions{CAFile: "/does/not/exist"}},
		{ClientCAFile: os.Args[0]},
	} {
		if _, err := New(opts); err == nil {
			t.Errorf("%+v: no error", opts)
		}
	}
}

func TestClientCAs(t *testing.T) {
	a1, b1 := newTestCA(t, "a"), newTestCA(t, "b")
	for n, opts := range map[int]Options{
		0: {},
		1: {ClientCAFile: a1.file()},
		2: {ClientCAFile: a1.file(), RequestHeader: RequestHeaderOptions{CAFile: b1.file()}},
	} {
		a, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		want := x509.NewCertPool()
		if n == 0 {
			if a.ClientCAs() != nil {
				t.Error("a pool of nothing")
			}
			continue
		}
		want.AddCert(a1.cert)
		if n == 2 {
			want.AddCert(b1.cert)
		}
		if got := a.ClientCAs(); !got.Equal(want) || a.ClientCAs() != got {
			t.Errorf("%d files: wrong pool, or another each time", n)
		}
	}
}

// TestFixedClientCAs: those of the options count beside those of the file.
func TestFixedClientCAs(t *testing.T) {
	fixed, filed, other := newTestCA(t, "fixed"), newTestCA(t, "filed"), newTestCA(t, "other")
	for _, file := range []string{"", filed.file()} {
		a, err := New(Options{ClientCAFile: file, ClientCAs: fixed.pem()})
		if err != nil {
			t.Fatal(err)
		}
		for ca, good := range map[*testCA]bool{fixed: true, filed: file != "", other: false} {
			r := &api.Request{PeerCertificates: ca.client(pkix.Name{CommonName: "bob"})}
			if id, err := a.Authenticate(t.Context(), r); (err == nil) != good {
				t.Errorf("file %q, %s: %v, %v", file, ca.cert.Subject, id, err)
			}
		}
	}
}

func BenchmarkAuthenticateCertificate(b *testing.B) {
	ca := newTestCA(b, "ca")
	a, err := New(Options{ClientCAFile: ca.file()})
	if err != nil {
		b.Fatal(err)
	}
	r := &api.Request{PeerCertificates: ca.client(pkix.Name{CommonName: "bob"})}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Authenticate(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
