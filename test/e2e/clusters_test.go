package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// writeFile writes a file to a temporary directory and returns its path.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// startLab starts a standalone server with the cluster's users, and returns it and the kubeconfig
// for a gateway.
func startLab(t *testing.T) (*realkube.Standalone, string) {
	t.Helper()
	lab := startStandalone(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, kube.WriteKubeconfig(file, lab.URL(), kube.ServingCAFile(), kube.AdminToken()))
	return lab, file
}

// byPath returns a client of a cluster by its path.
func byPath(t *testing.T, g *realkube.Gateway, cluster string) *kubernetes.Clientset {
	t.Helper()
	cfg := g.AdminConfig()
	cfg.Host += "/clusters/" + cluster
	return clientOf(t, cfg)
}

// byHost returns a client of a cluster by its host name, without DNS.
func byHost(t *testing.T, g *realkube.Gateway, host string) *kubernetes.Clientset {
	t.Helper()
	cfg := g.AdminConfig()
	address := strings.TrimPrefix(g.URL(), "https://")
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	cfg.Host = "https://" + net.JoinHostPort(host, port)
	cfg.ServerName = "localhost" // the name in the certificate
	cfg.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return clientOf(t, cfg)
}

func clientOf(t *testing.T, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	must(t, err)
	return client
}

// TestClusters runs a gateway in front of a kube-apiserver and standalone servers, by path and by
// host. One cluster is down and one is frozen; the others must not be affected.
func TestClusters(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	_, lab := startLab(t)
	slow, slowFile := startLab(t)
	down := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, kube.WriteKubeconfig(down, "https://127.0.0.1:1", kube.ServingCAFile(), kube.AdminToken()))
	// The flags of startGateway are the top-level settings, so the cluster real uses its kubeconfig.
	g := startGateway(t, "--all-clusters-max-requests-inflight=40", "--all-clusters-max-watches=40", "--config", writeFile(t, "gateway.yaml", fmt.Sprintf(`
clusters:
- name: real
  hosts: [real.example]
- name: lab
  hosts: [lab.example]
  kubeconfig: %s
- name: slow
  kubeconfig: %s
- name: down
  kubeconfig: %s
`, lab, slowFile, down)))

	for name, host := range map[string]string{"real": "real.example", "lab": "lab.example"} {
		for way, client := range map[string]*kubernetes.Clientset{"path": byPath(t, g, name), "host": byHost(t, g, host)} {
			useCluster(ctx, t, client, name+"-by-"+way)
		}
	}
	if _, err := byPath(t, g, "down").CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("list of the cluster that is down: %v", err)
	}
	if _, err := byPath(t, g, "none").CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "/clusters/NAME") {
		t.Errorf("list of an unknown cluster: %v", err)
	}

	// Requests that hang at the frozen cluster must not take slots from the others.
	_, err := byPath(t, g, "slow").CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	must(t, err)
	must(t, realkube.Pause(slow.PID()))
	frozen, thaw := context.WithCancel(ctx)
	var hanging sync.WaitGroup
	stuck := byPath(t, g, "slow")
	for i := range 100 {
		hanging.Go(func() {
			_, _ = stuck.CoreV1().ConfigMaps("default").Create(frozen, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}}, metav1.CreateOptions{})
		})
	}
	for name, client := range map[string]*kubernetes.Clientset{"real": byPath(t, g, "real"), "lab": byHost(t, g, "lab.example")} {
		for i := range 20 {
			if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
				t.Errorf("%s, while another cluster is frozen, request %d: %v", name, i, err)
			}
		}
	}
	if body := get(ctx, t, g.AdminURL()+"/readyz?verbose"); !strings.Contains(body, "[+]real/feeds ok") || !strings.Contains(body, "[-]down/resources failed") || !strings.HasSuffix(body, "readyz check passed\n") {
		t.Errorf("/readyz: %s", body)
	}
	thaw()
	hanging.Wait()
	must(t, realkube.Resume(slow.PID()))
	eventually(ctx, t, 30*time.Second, func() error {
		_, err := byPath(t, g, "slow").CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err
	})
}

// useCluster reads, writes and watches.
func useCluster(ctx context.Context, t *testing.T, client *kubernetes.Clientset, name string) {
	t.Helper()
	configMaps := client.CoreV1().ConfigMaps("default")
	w, err := configMaps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	must(t, err)
	defer w.Stop()
	_, err = configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	select {
	case event := <-w.ResultChan():
		if made, ok := event.Object.(*corev1.ConfigMap); !ok || made.Name != name {
			t.Errorf("%s: %+v", name, event)
		}
	case <-ctx.Done():
		t.Fatalf("%s: no event", name)
	}
	list, err := configMaps.List(ctx, metav1.ListOptions{})
	must(t, err)
	found := false
	for i := range list.Items {
		found = found || list.Items[i].Name == name
	}
	if !found {
		t.Errorf("the list does not contain %s", name)
	}
	if _, err := client.Discovery().OpenAPIV3().Paths(); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	must(t, configMaps.Delete(ctx, name, metav1.DeleteOptions{}))
}

func get(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(body)
}
