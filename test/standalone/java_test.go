package standalone

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// TestEnvtestJava starts, probes and stops the programs as the Java libraries jenvtest and kube-api-test
// (fabric8) do: with the same command lines, and certificates that are their own CAs.
func TestEnvtestJava(t *testing.T) {
	for _, library := range []struct {
		name     string
		waits    bool // for etcd, before kube-apiserver is started
		stopEtcd syscall.Signal
	}{
		{"jenvtest", false, syscall.SIGTERM},
		{"kube-api-test", true, syscall.SIGKILL},
	} {
		t.Run(library.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			programs, dir := assets(ctx, t), t.TempDir()
			selfSigned(t, dir, "apiserver", &x509.Certificate{
				Subject: pkix.Name{CommonName: "example.org"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
				DNSNames: []string{"kubernetes", "kubernetes.default", "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			})
			selfSigned(t, dir, "client", &x509.Certificate{
				Subject: pkix.Name{CommonName: "jenvtest", Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			})
			file := func(name string) string { return filepath.Join(dir, name) }
			etcdPort, peerPort, apiPort := freePort(t), freePort(t), freePort(t)
			etcd := command(t, filepath.Join(programs, "etcd"), "-data-dir", t.TempDir(), "-wal-dir", t.TempDir(),
				"--listen-client-urls", "http://0.0.0.0:"+etcdPort, "--advertise-client-urls", "http://0.0.0.0:"+etcdPort,
				"--initial-cluster", "default=http://localhost:"+peerPort,
				"--initial-advertise-peer-urls", "http://localhost:"+peerPort, "--listen-peer-urls", "http://localhost:"+peerPort)
			if library.waits {
				awaitOK(ctx, t, "http://127.0.0.1:"+etcdPort+"/health")
			}
			server := command(t, filepath.Join(programs, "kube-apiserver"), "--cert-dir", dir, "--secure-port", apiPort,
				"--etcd-servers", "http://0.0.0.0:"+etcdPort, "--authorization-mode", "RBAC",
				"--service-account-issuer", "https://localhost",
				"--service-account-signing-key-file", file("apiserver.key"), "--service-account-signing-key-file", file("apiserver.key"),
				"--service-account-key-file", file("apiserver.key"), "--service-account-issuer", file("apiserver.crt"),
				"--disable-admission-plugins", "ServiceAccount", "--client-ca-file", file("client.crt"),
				"--service-cluster-ip-range", "10.0.0.0/24", "--allow-privileged")
			awaitOK(ctx, t, "https://127.0.0.1:"+apiPort+"/readyz")
			kubectl := exec.CommandContext(ctx, tools(t).kubectl, "--client-certificate="+file("client.crt"), "--client-key="+file("client.key"),
				"--certificate-authority="+file("apiserver.crt"), "--server=https://127.0.0.1:"+apiPort, "--request-timeout=5s", "get", "ns", "default")
			kubectl.Env = append(os.Environ(), "KUBECONFIG="+file(".kubeconfig"))
			if out, err := kubectl.CombinedOutput(); err != nil || !strings.Contains(string(out), "default") {
				t.Errorf("%v: %s", err, out)
			}
			for _, end := range []struct {
				process *exec.Cmd
				signal  syscall.Signal
			}{{server, syscall.SIGKILL}, {etcd, library.stopEtcd}} {
				if err := end.process.Process.Signal(end.signal); err != nil {
					t.Error(err)
				}
				_ = end.process.Wait()
			}
		})
	}
}

// selfSigned writes a certificate that is its own CA, and its key.
func selfSigned(t *testing.T, dir, name string, template *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// freePort returns a port that stays reserved for the programs of the test.
func freePort(t *testing.T) string {
	t.Helper()
	address, release, err := realkube.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// command starts a program, which is killed at the end of the test.
func command(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, args...)
	log := &strings.Builder{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %s", filepath.Base(program), log)
		}
	})
	return cmd
}

// awaitOK requests a URL until the status is 200.
func awaitOK(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	if err := testbed.Poll(ctx, time.Minute, func() error {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", url, resp.Status)
		}
		_ = resp.Body.Close()
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
