package rbac

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestClients checks that with the printed rights kubectl works through a gateway for a user with a
// token, a user with a certificate and a ServiceAccount, and that the gateway sends no request that
// it may not make.
func TestClients(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "clients-gateway", rulesOf(printed(t, false)), nil)
	_, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	must(t, err)
	pair, err := kube.IssueClientCert(carol, "staff")
	must(t, err)
	for name, credentials := range map[string]*clientcmdapi.AuthInfo{
		"token":          {Token: kube.Token(realkube.Alice)},
		"certificate":    {ClientCertificate: pair.CertFile, ClientKey: pair.KeyFile},
		"serviceaccount": {Token: tokenOf(t, "robot")},
	} {
		kubeconfig := writeKubeconfig(t, g, credentials)
		ran := func(want string, args ...string) {
			t.Helper()
			if out, err := kube.Kubectl(t.Context(), kubeconfig, args...); err != nil || !strings.Contains(out, want) {
				t.Errorf("%s: %q: %s %v, want %q", name, args, out, err, want)
			}
		}
		ran("created", "create", "configmap", name, "--from-literal=a=b")
		ran("created", "create", "secret", "generic", name, "--from-literal=a=b")
		ran(name, "get", "configmaps,secrets")
		ran("a=c", "patch", "configmap", name, "-p", `{"data":{"a":"c"}}`, "-o", `go-template=a={{.data.a}}`)
		ran(name, "get", "configmap", name, "-o", "name")
		ran("condition met", "wait", "configmap", name, "--for=jsonpath={.data.a}=c", "--timeout=60s")
		ran("", "get", "widgets,nodes,customresourcedefinitions,apiservices,clusterroles")
		ran("deleted", "delete", "configmap", name)
	}
	rejected := func(want string, args ...string) {
		t.Helper()
		if out, err := kube.Kubectl(t.Context(), writeKubeconfig(t, g, &clientcmdapi.AuthInfo{Token: kube.Token(realkube.Alice)}), args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s %v, want %q", args, out, err, want)
		}
	}
	// The cluster responds to, or rejects, requests that are always forwarded.
	rejected("not found", "logs", "absent")
	rejected("not found", "exec", "absent", "--", "true")
	if status, _ := send(t, withToken(t, ""), "GET", g.url+"/api"); status != 401 {
		t.Errorf("a client without credentials got %d", status)
	}
	if status, body := send(t, withToken(t, kube.Token(realkube.Bob)), "GET", g.url+configMaps+"?resourceVersion=0"); status != 403 {
		t.Errorf("a client without rights got %d %.200s", status, body)
	}
	alice := withToken(t, kube.Token(realkube.Alice))
	for _, path := range []string{"/version", "/openapi/v2", "/openapi/v3", "/apis", "/metrics"} {
		if status, body := send(t, alice, "GET", g.url+path); status != 200 {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
	}
	// Reads are served from the cache in every representation.
	for _, accept := range []string{
		"application/json", "application/vnd.kubernetes.protobuf", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		"application/json;as=Table;g=meta.k8s.io;v=v1",
	} {
		before := g.metrics(t).Sum("kubeweir_requests_total", map[string]string{"resource": "nodes", "source": "cached"})
		responds(200, "", alice, "GET", "/api/v1/nodes?resourceVersion=0", "Accept: "+accept)(t, g)
		responds(200, "", alice, "GET", "/api/v1/nodes?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0&timeoutSeconds=1",
			"Accept: "+strings.Replace(strings.Replace(accept, "MetadataList", "Metadata", 1), "protobuf", "protobuf;stream=watch", 1))(t, g)
		if after := g.metrics(t).Sum("kubeweir_requests_total", map[string]string{"resource": "nodes", "source": "cached"}); after < before+1 {
			t.Errorf("%s: %v of 2 reads were served from the cache", accept, after-before)
		}
	}
	if ready := g.ready(t); !strings.Contains(ready, "readyz check passed") {
		t.Errorf("not ready:\n%s", ready)
	}
	// Only Secrets may be read by clients but not by the gateway. The log says so once per verb.
	for line := range strings.Lines(g.log.String()) {
		if strings.Contains(line, "level=WARN") && !strings.Contains(line, "resource=secrets") {
			t.Errorf("unexpected warning: %s", line)
		}
	}
	if n := strings.Count(g.log.String(), "lacks a right"); n == 0 || n > 3 {
		t.Errorf("the log mentions the missing right to Secrets %d times", n)
	}
}

func writeKubeconfig(t *testing.T, g *gateway, credentials *clientcmdapi.AuthInfo) string {
	t.Helper()
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: g.url, CertificateAuthority: kube.ServingCAFile()}
	cfg.AuthInfos["u"] = credentials
	cfg.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: "default"}
	cfg.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*cfg, path))
	return path
}

// TestUnknownGateway checks that a gateway token that the cluster does not know is logged once, and
// that the response to clients says that the gateway is at fault.
func TestUnknownGateway(t *testing.T) {
	t.Parallel()
	g := startWithToken(t, "wrong", nil)
	for range 3 {
		responds(503, notRequested, withToken(t, kube.Token(realkube.Alice)), "GET", configMaps)(t, g)
		responds(503, "cannot forward the request as its user at present", withCertificate(t, carol), "POST", configMaps, aConfigMap)(t, g)
	}
	if n := strings.Count(g.log.String(), "does not know the gateway's credentials"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if ready := g.ready(t); !strings.Contains(ready, "[-]resources failed") {
		t.Errorf("ready:\n%s", ready)
	}
}
