package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeweir/kubeweir/origin/pki"
)

// TestKubeconfig: there is a context for each cluster, by which it is reached.
func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(file, []byte("listen: 0.0.0.0:8443\ncertDir: certs\nclusters:\n- name: berlin\n  hosts: [berlin.example]\n- name: lab\n  pathPrefix: false\n  hosts: [lab.example, lab]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		code := command(t.Context(), append([]string{"kubeconfig", "--config", file}, args...), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	if code, _, stderr := run(); code != 2 || !strings.Contains(stderr, "start the gateway once") {
		t.Errorf("without a CA: %d %s", code, stderr)
	}
	material, err := pki.OpenServing(filepath.Join(dir, "certs"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	if code, _, stderr := run("--server", "https://gw.example:6443/k8s", "-o", out, "--current-context", "lab",
		"--exec-command", "login", "--exec-args", "token,--audience={cluster}"); code != 0 {
		t.Fatalf("%d %s", code, stderr)
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	made, err := clientcmd.LoadFromFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(made.Contexts) != 2 || made.CurrentContext != "lab" ||
		made.Clusters["berlin"].Server != "https://gw.example:6443/k8s/clusters/berlin" || made.Clusters["lab"].Server != "https://lab.example:6443/k8s" ||
		!bytes.Equal(made.Clusters["lab"].CertificateAuthorityData, material.CA.CertPEM) ||
		made.AuthInfos[made.Contexts["berlin"].AuthInfo].Exec.Args[1] != "--audience=berlin" {
		t.Errorf("%+v", made)
	}
	if code, _, stderr := run("-o", out); code != 2 || !strings.Contains(stderr, "set --force to overwrite it") {
		t.Errorf("%d %s", code, stderr)
	}
	if code, _, stderr := run("-o", out, "--force", "--token-file", "/run/{cluster}.token"); code != 0 {
		t.Errorf("%d %s", code, stderr)
	}
	if made, err = clientcmd.LoadFromFile(out); err != nil || made.AuthInfos["lab"].TokenFile != "/run/lab.token" || made.Clusters["berlin"].Server != "https://127.0.0.1:8443/clusters/berlin" {
		t.Errorf("%+v, %v", made, err)
	}
	for want, args := range map[string][]string{
		"--server must be an address":                {"--server", "gw.example:6443"},
		"--current-context must be":                  {"--current-context", "paris"},
		"give one of them":                           {"--token-file", "a", "--exec-command", "b"},
		"the gateway's URL is unknown; set --server": {"--listen", "127.0.0.1:0"},
		"--certificate-authority: ":                  {"--certificate-authority", "/nonexistent"},
		"has no certificate in PEM":                  {"--certificate-authority", file},
		`unexpected argument "berlin"`:               {"berlin"},
		"did you mean --current-context?":            {"--curent-context", "lab"},
	} {
		if code, stdout, stderr := run(args...); code != 2 || !strings.Contains(stderr, want) || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: %d %s %s", args, code, stdout, stderr)
		}
	}
	// The file of a certificate that others signed says nothing of who did.
	if err := os.WriteFile(filepath.Join(dir, "leaf.crt"), material.Serving.CertPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("listen: 127.0.0.1:8443\ntls: {certFile: leaf.crt, privateKeyFile: leaf.key}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run()
	if code != 0 || strings.Contains(stdout, "certificate-authority-data") || !strings.Contains(stderr, "contains no CA; set --certificate-authority") || !strings.Contains(stdout, "server: https://127.0.0.1:8443\n") {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
}
