package rbac

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

const (
	// waitTimeout bounds each wait, on a busy machine.
	waitTimeout = time.Minute
	pollPeriod  = 10 * time.Millisecond

	// carol authenticates with a certificate.
	carol       = "carol"
	widgetGroup = "example.com"
)

// kube is the cluster of all tests, admin a client of it. TestMain sets them and they never change.
var (
	kube  *realkube.Cluster
	admin *kubernetes.Clientset
)

func TestMain(m *testing.M) {
	testbed.Run(m, testbed.Options{Prepare: prepare})
}

func prepare(ctx context.Context, b *testbed.Testbed) (err error) {
	kube = b.Kube
	if admin, err = kubernetes.NewForConfig(kube.AdminConfig()); err != nil {
		return err
	}
	if err := createWidgets(ctx); err != nil {
		return err
	}
	// Clients may do everything, so that every failure is due to the gateway's rights.
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "clients"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{
			{Kind: "User", APIGroup: rbacv1.GroupName, Name: realkube.Alice}, {Kind: "User", APIGroup: rbacv1.GroupName, Name: carol},
			{Kind: "ServiceAccount", Namespace: "default", Name: "robot"},
		},
	}, metav1.CreateOptions{})
	return err
}

// createWidgets creates a custom resource definition.
func createWidgets(ctx context.Context) error {
	client, err := apiextensions.NewForConfig(kube.AdminConfig())
	if err != nil {
		return err
	}
	_, err = client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, definition("widgets", widgetGroup), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return poll(ctx, func() error {
		return admin.RESTClient().Get().AbsPath("/apis/" + widgetGroup + "/v1/widgets").Do(ctx).Error()
	})
}

func definition(plural, group string) *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	singular := strings.TrimSuffix(plural, "s")
	kind := strings.ToUpper(singular[:1]) + singular[1:]
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: singular, Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}},
			}},
		},
	}
}

// poll calls try until it succeeds.
func poll(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", waitTimeout, err)
		case <-time.After(pollPeriod):
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A gateway runs in this process. Its only credential is the token of a ServiceAccount with the
// given rights.
type gateway struct {
	url, admin string
	log        *syncBuffer
}

// A syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startGateway starts a gateway that ends with the test. name is the name of its ServiceAccount,
// ClusterRole and binding.
func startGateway(t *testing.T, name string, rules []rbacv1.PolicyRule, change func(*config.Gateway)) *gateway {
	t.Helper()
	token := createIdentity(t, name, rules)
	return startWithToken(t, token, change)
}

// gatewayConfig returns the common configuration of the gateways.
func gatewayConfig(t *testing.T) *config.Gateway {
	t.Helper()
	serving, err := kube.IssueServingCert("127.0.0.1")
	must(t, err)
	cfg := config.Default()
	cfg.Listen, cfg.AdminListen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.TLS.CertFile, cfg.TLS.PrivateKeyFile = serving.CertFile, serving.KeyFile
	cfg.Authentication.ClientCAFile = kube.ClientCAFile()
	cfg.Shutdown.Drain = 0
	return cfg
}

func startWithToken(t *testing.T, token string, change func(*config.Gateway)) *gateway {
	t.Helper()
	cfg := gatewayConfig(t)
	cfg.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, kube.WriteKubeconfig(cfg.Kubeconfig, kube.URL(), kube.ServingCAFile(), token))
	if change != nil {
		change(cfg)
	}
	g := &gateway{log: &syncBuffer{}}
	s, err := app.NewGateway(cfg, "kubeweir-test", slog.New(slog.NewTextHandler(g.log, nil)))
	must(t, err)
	t.Cleanup(s.Close)
	must(t, s.Start(t.Context()))
	t.Cleanup(s.Cut)
	g.url, g.admin = "https://"+s.Addr().String(), "http://"+s.AdminAddr().String()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the gateway's log:\n%s", g.log)
		}
	})
	return g
}

// createIdentity creates a ServiceAccount with the rights, waits until kube-apiserver grants them,
// and returns a token.
func createIdentity(t *testing.T, name string, rules []rbacv1.PolicyRule) string {
	t.Helper()
	ctx := t.Context()
	labels := metav1.ObjectMeta{Name: name}
	_, err := admin.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: labels}, metav1.CreateOptions{})
	must(t, err)
	_, err = admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: labels, Rules: rules}, metav1.CreateOptions{})
	must(t, err)
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: labels, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}},
	}, metav1.CreateOptions{})
	must(t, err)
	must(t, poll(ctx, func() error {
		review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:default:" + name,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: rules[0].Verbs[0], Group: rules[0].APIGroups[0], Resource: rules[0].Resources[0],
			},
		}}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("%s has no rights yet", name)
		}
		return err
	}))
	return tokenOf(t, name)
}

func tokenOf(t *testing.T, serviceAccount string) string {
	t.Helper()
	request, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), serviceAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	return request.Status.Token
}

// metrics returns the gateway's metrics.
func (g *gateway) metrics(t *testing.T) realkube.Metrics {
	t.Helper()
	status, body := send(t, http.DefaultClient, "GET", g.admin+"/metrics")
	if status != 200 {
		t.Fatal(status)
	}
	m, err := realkube.ParseMetrics([]byte(body))
	must(t, err)
	return m
}

// ready returns the response of /readyz.
func (g *gateway) ready(t *testing.T) string {
	t.Helper()
	_, body := send(t, http.DefaultClient, "GET", g.admin+"/readyz?verbose")
	return body
}

// withToken returns a client of the gateway with a bearer token.
func withToken(t *testing.T, token string) *http.Client { return clientOf(t, kube.ConfigFor(token)) }

func withCertificate(t *testing.T, user string, groups ...string) *http.Client {
	t.Helper()
	pair, err := kube.IssueClientCert(user, groups...)
	must(t, err)
	return clientOf(t, kube.ConfigForCert(pair))
}

func clientOf(t *testing.T, cfg *rest.Config) *http.Client {
	t.Helper()
	c, err := rest.HTTPClientFor(cfg)
	must(t, err)
	return c
}

// send makes a request with "Name: value" headers; a header that begins with "{" is a JSON body.
// For a watch, send reads only the header of the response.
func send(t *testing.T, c *http.Client, method, url string, header ...string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	var content io.Reader
	if n := len(header) - 1; n >= 0 && strings.HasPrefix(header[n], "{") {
		content, header = strings.NewReader(header[n]), append(header[:n:n], "Content-Type: application/json")
		if method == http.MethodPatch {
			header[n] = "Content-Type: application/merge-patch+json"
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, url, content)
	must(t, err)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := c.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	if strings.Contains(url, "watch=") && resp.StatusCode == 200 {
		return resp.StatusCode, ""
	}
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(b)
}
