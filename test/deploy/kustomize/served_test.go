package kustomize

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestGatewaysServe checks that the gateways of these folders start with the rendered settings and
// rights, become ready, and authenticate clients with the cluster.
func TestGatewaysServe(t *testing.T) {
	for _, folder := range []string{"front", "node", "dashboard"} {
		t.Run(folder, func(t *testing.T) {
			ctx := deadline(t)
			p := newPod(ctx, t, folder, nil)
			gateway := p.start(ctx)
			as := func(token string) *rest.Config {
				config := kube.ConfigFor(token)
				if config.Host = "https://" + p.address(":8443"); folder == "dashboard" {
					headlamp := p.inCluster(p.container("headlamp"))
					config.Host, config.CAFile = headlamp.Host, headlamp.CAFile
				}
				return config
			}
			if _, err := client(t, as(kube.AdminToken())).CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err != nil {
				t.Errorf("the administrator: %v", err)
			}
			_, err := client(t, as(kube.Token(realkube.Bob))).CoreV1().Namespaces().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "bob" cannot list resource "namespaces"`) {
				t.Errorf("bob: %v", err)
			}
			if _, err := client(t, as("")).CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
				t.Errorf("anonymous: %v", err)
			}
			for line := range strings.Lines(gateway.Log()) {
				if strings.Contains(line, "level=ERROR") || strings.Contains(line, "level=WARN") {
					t.Errorf("the gateway logged %s", line)
				}
			}
		})
	}
}

// TestDashboardReadsFromTheCache checks that the reads of Headlamp's users are served from the
// cache once it is filled.
func TestDashboardReadsFromTheCache(t *testing.T) {
	ctx := deadline(t)
	p := newPod(ctx, t, "dashboard", nil)
	p.start(ctx)
	config := p.inCluster(p.container("headlamp"))
	config.BearerTokenFile, config.BearerToken = "", kube.AdminToken() // Headlamp passes its users' tokens on
	user := client(t, config)
	eventually(ctx, t, func() error {
		if _, err := user.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			return err
		}
		m, err := metrics(p.address(":19444"))
		if err == nil && m.Sum("kubeweir_requests_total", map[string]string{"resource": "nodes", "source": "cached"}) == 0 {
			err = errors.New("no list of nodes was served from the cache")
		}
		return err
	})
}

func metrics(admin string) (realkube.Metrics, error) {
	resp, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	return realkube.ParseMetrics(text)
}

// TestStandaloneServes reads with a token from the Secret that users create.
func TestStandaloneServes(t *testing.T) {
	ctx := deadline(t)
	p := newPod(ctx, t, "standalone", nil)
	p.start(ctx)
	config := kube.ConfigFor("first")
	config.Host = "https://" + p.address(":6443")
	if _, err := client(t, config).CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
