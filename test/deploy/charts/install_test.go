package charts

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestInstall checks that generated certificates and keys survive upgrades until they must be
// renewed, and that a standalone's keys survive even an uninstallation. The client CA is the
// cluster's.
func TestInstall(t *testing.T) {
	kubeconfig := filepath.Join(work, "install.kubeconfig")
	if err := kube.WriteKubeconfig(kubeconfig, kube.URL(), kube.ServingCAFile(), kube.AdminToken()); err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(kube.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"helm3", "helm4"} {
		t.Run(name, func(t *testing.T) {
			i := &installation{t: t, helm: name, kubeconfig: kubeconfig, clients: clients}
			i.gateway()
			i.standalone()
		})
	}
}

// An installation is a release whose namespace is named after the version of helm.
type installation struct {
	t          *testing.T
	helm       string
	kubeconfig string
	clients    kubernetes.Interface
}

func (i *installation) run(values string, args ...string) string {
	i.t.Helper()
	out, err := helm(i.t.Context(), i.helm, values, append(args, "--kubeconfig", i.kubeconfig, "--namespace", i.helm)...)
	if err != nil {
		i.t.Fatalf("helm %v: %v", args, err)
	}
	return out
}

func (i *installation) secret(name string) *corev1.Secret {
	i.t.Helper()
	s, err := i.clients.CoreV1().Secrets(i.helm).Get(i.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		i.t.Fatal(err)
	}
	return s
}

// leaf returns a serving certificate after checking that the CA in the same Secret has signed it.
func (i *installation) leaf(s *corev1.Secret, hosts ...string) *x509.Certificate {
	i.t.Helper()
	pair, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
	if err != nil {
		i.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.Data["ca.crt"])
	for _, host := range hosts {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: host}); err != nil {
			i.t.Errorf("%s: %v", host, err)
		}
	}
	return pair.Leaf
}

func (i *installation) gateway() {
	t, ctx := i.t, i.t.Context()
	release := i.helm + "-weir" // names ClusterRoles, which have no namespace
	notes := i.run("clientCA: {fromCluster: true}", "install", release, chart, "--create-namespace", "--values", "-")
	if !strings.Contains(notes, "kubectl -n "+i.helm+" get configmap "+release+"-kubeweir-ca") {
		t.Errorf("the notes do not say how to get the CA:\n%s", notes)
	}
	if !strings.Contains(notes, "--set rbac.impersonation=unconstrained: whoever has the gateway's token") {
		t.Errorf("the notes do not explain unconstrained impersonation:\n%s", notes)
	}
	name := release + "-kubeweir"
	ca, err := i.clients.CoreV1().ConfigMaps(i.helm).Get(ctx, name+"-client-ca", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := i.clients.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if block, _ := pem.Decode([]byte(ca.Data["ca.crt"])); block == nil || strings.TrimSpace(ca.Data["ca.crt"]) != strings.TrimSpace(cluster.Data["client-ca-file"]) {
		t.Errorf("the client CA is %q", ca.Data["ca.crt"])
	}

	first := i.secret(name + "-tls")
	i.leaf(first, name, name+"."+i.helm+".svc", "localhost", "127.0.0.1")
	i.run("replicas: 3", "upgrade", release, chart, "--values", "-")
	if saved := i.secret(name + "-tls"); !bytes.Equal(saved.Data["tls.crt"], first.Data["tls.crt"]) || !bytes.Equal(saved.Data["tls.key"], first.Data["tls.key"]) {
		t.Error("an upgrade replaced the certificate")
	}
	i.run("tls: {dnsNames: [weir.example.com]}", "upgrade", release, chart, "--values", "-")
	second := i.secret(name + "-tls")
	i.leaf(second, "localhost", "weir.example.com")
	if !bytes.Equal(first.Data["ca.crt"], second.Data["ca.crt"]) {
		t.Error("a new name in the certificate replaced the CA")
	}

	const renewAfter = "kubeweir.io/renew-after"
	at := second.Annotations[renewAfter]
	second.Annotations[renewAfter] = "1"
	if _, err := i.clients.CoreV1().Secrets(i.helm).Update(ctx, second, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	upgrade := []string{"upgrade", release, chart, "--values", "-"}
	if i.helm == "helm4" {
		upgrade = append(upgrade, "--force-conflicts") // this test is another field manager than Helm
	}
	i.run("tls: {dnsNames: [weir.example.com]}", upgrade...)
	third := i.secret(name + "-tls")
	if bytes.Equal(third.Data["tls.crt"], second.Data["tls.crt"]) || third.Annotations[renewAfter] < at {
		t.Error("a certificate near its end was not renewed")
	}
	if days := time.Until(i.leaf(third, "weir.example.com").NotAfter).Hours() / 24; days < 729 || days > 731 {
		t.Errorf("a certificate is valid for %.1f days", days)
	}
	i.run("", "uninstall", release)
}

func (i *installation) standalone() {
	t, ctx := i.t, i.t.Context()
	const release = "kubeweir"
	i.run("", "install", release, chart, "--set", "mode=standalone")
	token, keys := i.secret("kubeweir-admin").Data["token"], i.secret("kubeweir-pki").Data
	i.leaf(i.secret("kubeweir-tls"), "kubeweir."+i.helm+".svc", "kubernetes.default.svc")
	i.run("", "upgrade", release, chart, "--set", "mode=standalone", "--set", "podLabels.a=b")
	if !bytes.Equal(token, i.secret("kubeweir-admin").Data["token"]) || !bytes.Equal(keys["sa.key"], i.secret("kubeweir-pki").Data["sa.key"]) {
		t.Error("an upgrade replaced the keys")
	}
	i.run("", "uninstall", release)
	i.run("", "install", release, chart, "--set", "mode=standalone")
	if !bytes.Equal(keys["ca.key"], i.secret("kubeweir-pki").Data["ca.key"]) || !bytes.Equal(keys["ca.crt"], i.secret("kubeweir-tls").Data["ca.crt"]) {
		t.Error("the keys of the volume were deleted")
	}
	i.run("", "uninstall", release)
	if err := i.clients.CoreV1().Secrets(i.helm).Delete(ctx, "kubeweir-pki", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}
