package certs

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeweir/kubeweir/config"
)

// TestGeneratedCAIsPersistent checks that the CA is the same after a restart, and that KUBECONFIG joins it
// with the credentials for the cluster.
func TestGeneratedCAIsPersistent(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	dir := filepath.Join(t.TempDir(), "certs")
	upstream := filepath.Join(t.TempDir(), "cluster.kubeconfig")
	const cluster = `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: k, cluster: {server: "https://k"}}],
		contexts: [{name: c, context: {cluster: k, user: alice}}], users: [{name: alice, user: {token: secret}}]}`
	if err := os.WriteFile(upstream, []byte(cluster), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &config.Gateway{Listen: "127.0.0.1:0", CertDir: dir, Kubeconfig: upstream}
	first, err := NewGenerated(c, log)
	if err != nil {
		t.Fatal(err)
	}
	again, err := NewGenerated(c, log)
	if err != nil {
		t.Fatal(err)
	}
	if string(first.material.Load().CA.CertPEM) != string(again.material.Load().CA.CertPEM) {
		t.Error("the CA was made anew")
	}
	list, err := again.WriteKubeconfig(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8443})
	if err != nil {
		t.Fatal(err)
	}
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(list)}
	merged, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	if merged.Host != "https://127.0.0.1:8443" || merged.BearerToken != "secret" || string(merged.CAData) != string(first.material.Load().CA.CertPEM) {
		t.Errorf("%s, token %q", merged.Host, merged.BearerToken)
	}
	if other, err := again.WriteKubeconfig(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9443}); err != nil || other == list {
		t.Errorf("a gateway of another address overwrites %s (%v)", other, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 7 { // CA and certificate with their keys, two kubeconfigs, lock
		t.Errorf("%v, %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		info, serr := os.Stat(file)
		if err != nil || serr != nil || info.Mode().Perm() != 0o600 || strings.Contains(string(content), "secret") {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	if none, err := NewGenerated(&config.Gateway{Listen: "127.0.0.1:0", TLS: config.TLS{CertFile: "x"}}, log); none != nil || err != nil {
		t.Errorf("with a certificate: %v, %v", none, err)
	}
}
