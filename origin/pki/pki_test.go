package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(now time.Time) Options {
	return Options{
		Hosts:     []string{"weir.example", "192.0.2.7", "0.0.0.0", "", "fe80::1%eth0"},
		ServiceIP: netip.MustParseAddr("10.0.0.1"),
		Now:       func() time.Time { return now },
	}
}

func mustOpen(t *testing.T, dir string, o Options) *Material {
	t.Helper()
	m, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestServingNames(t *testing.T) {
	m, err := InMemory(at(start))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"weir.example", "127.0.0.1", "::1", "10.0.0.1", "192.0.2.7", "fe80::1",
	} {
		if _, err := m.Serving.Certificate.Verify(x509.VerifyOptions{DNSName: name, Roots: m.CAPool(), CurrentTime: start}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if m.Serving.Certificate.VerifyHostname("0.0.0.0") == nil {
		t.Error("the certificate names an unspecified address")
	}
}

func TestClients(t *testing.T) {
	m, err := InMemory(at(start))
	if err != nil {
		t.Fatal(err)
	}
	issued, err := m.IssueClient("jane", "dev", "ops")
	if err != nil {
		t.Fatal(err)
	}
	front := x509.NewCertPool()
	front.AddCert(m.FrontProxyCA.Certificate)
	for _, tc := range []struct {
		name   string
		pair   *KeyPair
		roots  *x509.CertPool
		user   string
		groups []string
	}{
		{"admin", m.Admin, m.CAPool(), "kubernetes-admin", []string{"system:masters"}},
		{"kubelet client", m.KubeletClient, m.CAPool(), "kube-apiserver-kubelet-client", []string{"system:masters"}},
		{"front proxy", m.FrontProxyClient, front, "front-proxy-client", nil},
		{"issued", issued, m.CAPool(), "jane", []string{"dev", "ops"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cert := tc.pair.Certificate
			usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
			if _, err := cert.Verify(x509.VerifyOptions{Roots: tc.roots, KeyUsages: usage, CurrentTime: start}); err != nil {
				t.Error(err)
			}
			if cert.Subject.CommonName != tc.user || !slices.Equal(cert.Subject.Organization, tc.groups) {
				t.Errorf("subject %s", cert.Subject)
			}
			if _, err := tls.X509KeyPair(tc.pair.CertPEM, tc.pair.KeyPEM); err != nil {
				t.Error(err)
			}
		})
	}
	// A certificate signed by one CA is not trusted by the other.
	if _, err := m.Admin.Certificate.Verify(x509.VerifyOptions{Roots: front, CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		t.Error("the front proxy's CA verifies the admin")
	}
}

func TestOpenKeepsWhatIsThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "pki")
	first := mustOpen(t, dir, at(start))
	second := mustOpen(t, dir, at(start.Add(200*24*time.Hour)))
	for name, pair := range map[string][2]*KeyPair{
		"ca": {first.CA, second.CA}, "serving": {first.Serving, second.Serving}, "admin": {first.Admin, second.Admin},
		"kubelet": {first.KubeletClient, second.KubeletClient}, "front proxy": {first.FrontProxyClient, second.FrontProxyClient},
	} {
		if string(pair[0].CertPEM) != string(pair[1].CertPEM) || string(pair[0].KeyPEM) != string(pair[1].KeyPEM) {
			t.Errorf("%s was made anew", name)
		}
	}
	if string(first.ServiceAccountKeyPEM) != string(second.ServiceAccountKeyPEM) {
		t.Error("the service-account key was made anew")
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	cert, key := second.KubeletClientFiles()
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		t.Error(err)
	}
}

func TestRenewal(t *testing.T) {
	day := 24 * time.Hour
	for _, tc := range []struct {
		name              string
		after             time.Duration
		change            func(*Options)
		leaf, serving, ca bool // made anew
	}{
		{name: "fresh", after: 240 * day},
		{name: "leaves near their end", after: 250 * day, leaf: true, serving: true},
		{name: "leaves expired", after: 400 * day, leaf: true, serving: true},
		{name: "CA near its end", after: 9 * 365 * day, leaf: true, serving: true, ca: true},
		{name: "CA expired", after: 11 * 365 * day, leaf: true, serving: true, ca: true},
		{name: "another host", after: day, change: func(o *Options) { o.Hosts = append(o.Hosts, "other.example") }, serving: true},
		{name: "another service range", after: day, change: func(o *Options) { o.ServiceIP = netip.MustParseAddr("10.96.0.1") }, serving: true},
		{name: "fewer hosts", after: day, change: func(o *Options) { o.Hosts = nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			old := mustOpen(t, dir, at(start))
			now := start.Add(tc.after)
			o := at(now)
			if tc.change != nil {
				tc.change(&o)
			}
			renewed := mustOpen(t, dir, o)
			check := func(what string, a, b *KeyPair, anew bool) {
				if (string(a.CertPEM) != string(b.CertPEM)) != anew {
					t.Errorf("%s made anew: %v, want %v", what, !anew, anew)
				}
				if string(a.KeyPEM) != string(b.KeyPEM) {
					t.Errorf("%s has another key", what)
				}
				if !now.Before(b.Certificate.NotAfter) {
					t.Errorf("%s ended %s", what, b.Certificate.NotAfter)
				}
			}
			check("the CA", old.CA, renewed.CA, tc.ca)
			check("the admin", old.Admin, renewed.Admin, tc.leaf)
			check("the serving certificate", old.Serving, renewed.Serving, tc.serving)
			// The old CA's certificate, in somebody's kubeconfig, is good until it ends.
			verifyAt := now
			if end := old.CA.Certificate.NotAfter; end.Before(now) {
				verifyAt = renewed.Serving.Certificate.NotBefore
				if verifyAt.After(end) {
					return
				}
			}
			if _, err := renewed.Serving.Certificate.Verify(x509.VerifyOptions{Roots: old.CAPool(), CurrentTime: verifyAt}); err != nil {
				t.Errorf("with the old CA: %v", err)
			}
		})
	}
}

// TestLongLife: a process that outlives its certificate serves a newer one.
func TestLongLife(t *testing.T) {
	now := start
	m, err := InMemory(Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	first, err := m.ServingCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if same, _ := m.ServingCertificate(nil); same != first {
		t.Error("another certificate at once")
	}
	now = now.Add(300 * 24 * time.Hour)
	later, err := m.ServingCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !later.Leaf.NotAfter.After(first.Leaf.NotAfter) {
		t.Errorf("still the one that ends %s", later.Leaf.NotAfter)
	}
}

func TestBadFolders(t *testing.T) {
	other, err := InMemory(at(start))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, content []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	chmod := func(name string, mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tc := range []struct {
		name   string
		damage func(*testing.T, string)
		want   string // of the error; empty: none
	}{
		{"CA's key lost", remove("ca.key"), "ca.key is missing beside ca.crt"},
		{"another CA's key", write("ca.key", other.CA.KeyPEM), "ca.crt and ca.key do not belong together"},
		{"another CA", func(t *testing.T, dir string) {
			write("ca.key", other.CA.KeyPEM)(t, dir)
			write("ca.crt", other.CA.CertPEM)(t, dir)
		}, "apiserver.crt was not signed by the CA beside it"},
		{"no CA at all", func(t *testing.T, dir string) {
			write("ca.key", other.Admin.KeyPEM)(t, dir)
			write("ca.crt", other.Admin.CertPEM)(t, dir)
		}, "ca.crt is not the certificate of a CA"},
		{"leaf's key lost", remove("admin.key"), "admin.key is missing beside admin.crt"},
		{"cut off", write("apiserver.crt", nil), "apiserver.crt: no PEM block of a certificate"},
		{"garbage in a block", write("apiserver.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("no")})), "apiserver.crt: x509:"},
		{"no key in a key file", write("sa.key", []byte("hello")), "sa.key: no PEM block of a private key"},
		{"everybody's key", chmod("ca.key", 0o604), "ca.key is a private key that others may use (mode 0604)"},
		{"a pod's fsGroup", chmod("ca.key", 0o660), ""},
		{"key without certificate", remove("admin.crt"), ""},
		{"leaf removed", func(t *testing.T, dir string) { remove("admin.crt")(t, dir); remove("admin.key")(t, dir) }, ""},
		{"a file that was being written", write(".ca.crt.new", []byte("half")), ""},
		{"a folder in the way", func(t *testing.T, dir string) {
			remove("sa.key")(t, dir)
			if err := os.Mkdir(filepath.Join(dir, "sa.key"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "sa.key: is a directory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			before := mustOpen(t, dir, at(start))
			tc.damage(t, dir)
			after, err := Open(dir, at(start))
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if string(before.CA.CertPEM) != string(after.CA.CertPEM) {
					t.Error("the CA was made anew")
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			if !strings.Contains(err.Error(), dir) {
				t.Errorf("the error does not name the folder: %v", err)
			}
		})
	}
}

// TestForeignKeys: folders made by kubeadm or openssl hold RSA keys in their old form.
func TestForeignKeys(t *testing.T) {
	dir := t.TempDir()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := sign(&x509.Certificate{
		NotBefore: start, NotAfter: start.Add(caLifetime), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	for name, content := range map[string][]byte{"ca.crt": ca.CertPEM, "ca.key": pkcs1, "sa.key": pkcs1} {
		if err := WriteFile(filepath.Join(dir, name), content); err != nil {
			t.Fatal(err)
		}
	}
	m := mustOpen(t, dir, at(start))
	if _, ok := m.ServiceAccountKey.(*rsa.PrivateKey); !ok {
		t.Errorf("service-account key is a %T", m.ServiceAccountKey)
	}
	if _, ok := m.Admin.Key.(*ecdsa.PrivateKey); !ok {
		t.Errorf("admin's key is a %T", m.Admin.Key)
	}
	if _, err := m.Serving.Certificate.Verify(x509.VerifyOptions{Roots: m.CAPool(), CurrentTime: start.Add(time.Hour)}); err != nil {
		t.Error(err)
	}
}

func TestOpenAtTheSameTime(t *testing.T) {
	dir := t.TempDir()
	var all [4]*Material
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			m, err := Open(dir, at(start))
			if err != nil {
				t.Error(err)
			}
			all[i] = m
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, m := range all[1:] {
		if string(m.CA.CertPEM) != string(all[0].CA.CertPEM) || string(m.Serving.KeyPEM) != string(all[0].Serving.KeyPEM) {
			t.Error("two processes hold different material")
		}
	}
}

// TestKubeconfig connects with what the file says.
func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	m := mustOpen(t, filepath.Join(dir, "pki"), Options{})
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := m.WriteKubeconfig(path, "https://127.0.0.1:6443"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if direct := m.RESTConfig("https://127.0.0.1:6443", m.Admin); config.Host != direct.Host || string(config.CertData) != string(direct.CertData) {
		t.Errorf("kubeconfig says %s", config)
	}
	client, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(config.CAData) {
		t.Fatal("no CA")
	}
	near, far := net.Pipe()
	server := tls.Server(far, &tls.Config{
		GetCertificate: m.ServingCertificate, ClientCAs: m.CAPool(), ClientAuth: tls.RequireAndVerifyClientCert,
	})
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	conn := tls.Client(near, &tls.Config{ServerName: "127.0.0.1", RootCAs: roots, Certificates: []tls.Certificate{client}})
	if err := conn.Handshake(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if user := server.ConnectionState().PeerCertificates[0].Subject.CommonName; user != AdminUser {
		t.Errorf("the server sees %s", user)
	}
	near.Close()
	far.Close()
}

func BenchmarkInMemory(b *testing.B) {
	for b.Loop() {
		if _, err := InMemory(Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, full := range []bool{false, true} {
		name := map[bool]string{false: "empty", true: "full"}[full]
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			for b.Loop() {
				if !full {
					dir = b.TempDir()
				}
				if _, err := Open(dir, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestServingInMemory: a certificate for the host and for loopback, which is renewed below the same CA.
func TestServingInMemory(t *testing.T) {
	for host, also := range map[string]string{"": "", "0.0.0.0": "", "::": "", "kubeweir.example": "kubeweir.example", "192.0.2.7": "192.0.2.7", "localhost": ""} {
		now := time.Now()
		m, err := ServingInMemory(Options{Hosts: []string{host}, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		first, _ := m.ServingCertificate(nil)
		names := []string{"localhost", "127.0.0.1", "::1"}
		if also != "" {
			names = append(names, also)
		}
		for _, name := range names {
			if _, err := first.Leaf.Verify(x509.VerifyOptions{Roots: m.CAPool(), DNSName: name, CurrentTime: now}); err != nil {
				t.Errorf("%s for %s: %v", host, name, err)
			}
		}
		if again, _ := m.ServingCertificate(nil); again != first {
			t.Error("a new certificate too soon")
		}
		now = first.Leaf.NotAfter.Add(-leafRenewal + time.Minute)
		renewed, _ := m.ServingCertificate(nil)
		if renewed == first {
			t.Error("not renewed")
		}
		if _, err := renewed.Leaf.Verify(x509.VerifyOptions{Roots: m.CAPool(), DNSName: "localhost", CurrentTime: now}); err != nil {
			t.Error(err)
		}
	}
}
