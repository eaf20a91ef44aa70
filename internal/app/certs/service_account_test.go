package certs

import (
	"bytes"
	"crypto/x509"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/config"
)

// TestServiceAccountDir checks the files, that they are the same after a restart, and that everyone
// who may read the directory may read them.
func TestServiceAccountDir(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	const cluster = `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: k, cluster: {server: "https://k"}}],
		contexts: [{name: c, context: {cluster: k, user: u, namespace: shop}}], users: [{name: u, user: {token: secret}}]}`
	if err := os.WriteFile(kubeconfig, []byte(cluster), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &config.Gateway{Listen: "127.0.0.1:8443", CertDir: t.TempDir(), Kubeconfig: kubeconfig, ServiceAccountDir: filepath.Join(t.TempDir(), "made")}
	fill := func() (token, ca string) {
		t.Helper()
		cert, err := NewGenerated(c, log)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := FillServiceAccountDir(c, cert)
		if err != nil {
			t.Fatal(err)
		}
		files := make(map[string]string)
		entries, err := os.ReadDir(c.ServiceAccountDir)
		for _, entry := range entries {
			var content []byte
			if content, err = os.ReadFile(filepath.Join(c.ServiceAccountDir, entry.Name())); err != nil {
				break
			}
			files[entry.Name()] = string(content)
		}
		if err != nil || len(files) != 3 || files["namespace"] != "shop" || files["token"] != string(secret) || len(secret) < 43 || strings.Contains(string(secret), "\n") {
			t.Errorf("%q, %v", files, err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(files["ca.crt"]))
		for _, host := range []string{"127.0.0.1", "localhost", "kubernetes.default.svc"} {
			if _, err := cert.material.Load().Serving.Certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
				t.Error(err)
			}
		}
		return files["token"], files["ca.crt"]
	}
	modes := func(want fs.FileMode) {
		t.Helper()
		for _, name := range []string{"ca.crt", "namespace", "token"} {
			if info, err := os.Stat(filepath.Join(c.ServiceAccountDir, name)); err != nil || info.Mode() != want {
				t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
			}
		}
	}
	token, ca := fill()
	modes(0o440)
	if again, sameCA := fill(); again != token || sameCA != ca {
		t.Error("after a restart token or CA are others")
	}

	// The volume of a pod is everybody's who has it.
	volume := t.TempDir()
	if err := os.Chmod(volume, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(volume, "token"), []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.ServiceAccountDir = volume
	other, _ := fill()
	modes(0o444)
	if other == token {
		t.Error("two folders have one token")
	}
	// Gateways of one host's network and CA, in containers whose folders have one name.
	c.Listen = "127.0.0.1:8444"
	if neighbour, _ := fill(); neighbour == other {
		t.Error("two addresses have one token")
	}
	c.CertDir = t.TempDir()
	if replaced, _ := fill(); replaced == other {
		t.Error("another CA, but the same token")
	}

	if none, err := FillServiceAccountDir(&config.Gateway{}, nil); none != "" || err != nil {
		t.Errorf("without being asked: %q, %v", string(none), err)
	}
	for what, change := range map[string]func(c *config.Gateway){
		"cannot be kept":         func(*config.Gateway) {},
		"not a directory":        func(c *config.Gateway) { c.ServiceAccountDir = kubeconfig },
		"not a directory: below": func(c *config.Gateway) { c.ServiceAccountDir = filepath.Join(kubeconfig, "below") },
	} {
		bad := *c
		change(&bad)
		cert, err := NewGenerated(c, log)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(what, "cannot") {
			cert = nil
		}
		what, _, _ = strings.Cut(what, ":")
		if _, err := FillServiceAccountDir(&bad, cert); err == nil || !strings.HasPrefix(err.Error(), "--service-account-dir: ") || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestServiceAccountTokenIsNotLogged where the gateway says what it serves.
func TestServiceAccountTokenIsNotLogged(t *testing.T) {
	token, err := serviceAccountToken([]byte("key"), "/d", "127.0.0.1:8443")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("made", "token", token)
	if strings.Contains(out.String(), string(token)) {
		t.Error(out.String())
	}
}
