package offline

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// The testbed of all tests. TestMain starts it, and no test replaces it. The tests stop and freeze
// its kube-apiserver, so they run one after the other.
var (
	bed  *testbed.Testbed
	kube *realkube.Cluster
)

func TestMain(m *testing.M) {
	testbed.Run(m, testbed.Options{Program: true, Prepare: func(ctx context.Context, b *testbed.Testbed) error {
		bed, kube = b, b.Kube
		return newReader(ctx)
	}})
}

// settings allow offline reads of everything except Secrets. Clients whose user agent begins with
// "strict" use strict consistency.
const settings = `
consistency:
  default: session
offline:
  default: allow
  ttl: 5m
rules:
- userAgents: ["strict*"]
  consistency: strict
- resources: [secrets]
  offline: deny
authentication:
  tokenTTL: 500ms
authorization:
  allowedTTL: 500ms
  deniedTTL: 500ms
`

func startGateway(t *testing.T, args ...string) *realkube.Gateway {
	t.Helper()
	return startGatewayWith(t, writeSettings(t, filepath.Join(t.TempDir(), "gateway.yaml"), settings), args...)
}

// startGatewayWith starts a gateway with a configuration file.
func startGatewayWith(t *testing.T, file string, args ...string) *realkube.Gateway {
	t.Helper()
	return bed.StartGateway(t, realkube.GatewayOptions{ExtraArgs: append([]string{"--config", file}, args...)})
}

func writeSettings(t *testing.T, file, content string) string {
	t.Helper()
	must(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls until check returns nil.
func eventually(ctx context.Context, t *testing.T, check func() error) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// A client sends requests to the gateway as one user.
type client struct {
	t     *testing.T
	g     *realkube.Gateway
	http  *http.Client
	token string
	agent string
}

// newClient returns a client that authenticates with a token or a certificate.
func newClient(t *testing.T, g *realkube.Gateway, token string, cert *realkube.KeyPair) *client {
	t.Helper()
	cfg := &tls.Config{RootCAs: kube.ServingCAs()}
	if cert != nil {
		pair, err := tls.X509KeyPair(cert.CertPEM, cert.KeyPEM)
		must(t, err)
		cfg.Certificates = []tls.Certificate{pair}
	}
	c := &client{t: t, g: g, token: token, http: &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}}}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// response is a response of the gateway.
type response struct {
	status int
	header http.Header
	body   string
	took   time.Duration
}

func (a response) String() string {
	return fmt.Sprintf("%d after %v, Age %q, Warning %q: %.200s", a.status, a.took, a.header.Get("Age"), a.header.Get("Warning"), a.body)
}

func (a response) marked() bool {
	return a.header.Get("Age") != "" && strings.HasPrefix(a.header.Get("Warning"), "110 ")
}

func (c *client) do(ctx context.Context, method, path, body string) response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, c.g.URL()+path, strings.NewReader(body))
	must(c.t, err)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", cmp.Or(c.agent, "test"))
	began := time.Now()
	resp, err := c.http.Do(req)
	must(c.t, err)
	defer func() { _ = resp.Body.Close() }()
	if strings.Contains(path, "watch=") && resp.StatusCode == http.StatusOK {
		return response{status: resp.StatusCode, header: resp.Header, took: time.Since(began)} // the watch stays open
	}
	b, err := io.ReadAll(resp.Body)
	must(c.t, err)
	return response{resp.StatusCode, resp.Header, string(b), time.Since(began)}
}

// get sends a GET request and checks the status and whether the response is marked as stale.
func (c *client) get(ctx context.Context, path string, status int, marked bool) {
	c.t.Helper()
	if a := c.do(ctx, http.MethodGet, path, ""); a.status != status || a.marked() != marked {
		c.t.Errorf("GET %s: %v; want %d, marked %v", path, a, status, marked)
	} else if status == http.StatusServiceUnavailable && a.header.Get("Retry-After") == "" {
		c.t.Errorf("GET %s: no Retry-After", path)
	}
}

// served waits until a GET request succeeds.
func (c *client) served(ctx context.Context, path string) {
	c.t.Helper()
	eventually(ctx, c.t, func() error {
		if a := c.do(ctx, http.MethodGet, path, ""); a.status != http.StatusOK {
			return fmt.Errorf("GET %s: %v", path, a)
		}
		return nil
	})
}

// reader is a ClusterRole for readers. The built-in view role aggregates others, so it is empty
// without a controller manager.
const reader = "reader"

func newReader(ctx context.Context) error {
	c, err := kubernetes.NewForConfig(kube.AdminConfig())
	if err != nil {
		return err
	}
	_, err = c.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: reader},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"", "apps"}, Resources: []string{"configmaps", "deployments"}}},
	}, metav1.CreateOptions{})
	return err
}

// admin returns an administrator's client of kube-apiserver itself.
func admin(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(kube.AdminConfig())
	must(t, err)
	return c
}

// newNamespace creates a namespace with a ConfigMap that the users may read.
func newNamespace(ctx context.Context, t *testing.T, name string, users ...string) {
	t.Helper()
	c := admin(t)
	_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	must(t, err)
	for _, u := range users {
		grant(ctx, t, name, u)
	}
}

// grant allows a user to read a namespace, by a RoleBinding with the user's name.
func grant(ctx context.Context, t *testing.T, namespace, user string) {
	t.Helper()
	_, err := admin(t).RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reader},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	must(t, err)
}

// revoke deletes the RoleBinding that grant created.
func revoke(ctx context.Context, t *testing.T, namespace, user string) {
	t.Helper()
	must(t, admin(t).RbacV1().RoleBindings(namespace).Delete(ctx, user, metav1.DeleteOptions{}))
}

// metric returns the sum of one of the gateway's metrics.
func metric(ctx context.Context, t *testing.T, g *realkube.Gateway, name string, labels map[string]string) float64 {
	t.Helper()
	m, err := g.Metrics(ctx)
	must(t, err)
	return m.Sum(name, labels)
}
