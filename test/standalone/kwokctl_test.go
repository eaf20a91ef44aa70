package standalone

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestKwokctl has kwokctl run a cluster of processes with kubeweir's kube-apiserver and etcd, as its users do:
// a Pod becomes Running on a node of kwok, and is still there after a restart of the cluster.
func TestKwokctl(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	kwokctl, err := realkube.Tool(ctx, "kwokctl", realkube.Tools["kwokctl"])
	if err != nil {
		t.Fatal(err)
	}
	programs, err := realkube.BuildControllers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir, home := assets(ctx, t), t.TempDir()
	run := func(ctx context.Context, args ...string) error {
		cmd := exec.CommandContext(ctx, kwokctl, append(args, "--name", "test")...)
		// Nothing is downloaded.
		cmd.Env = append(os.Environ(), "HOME="+home, "KWOK_WORKDIR="+home, "KWOK_KUBECTL_BINARY="+tools(t).kubectl, "KUBEWEIR_STORE=disk",
			"HTTP_PROXY=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1", "NO_PROXY=127.0.0.1,localhost")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("kwokctl %v: %s", args, out)
		}
		return err
	}
	t.Cleanup(func() {
		if err := run(context.WithoutCancel(ctx), "delete", "cluster"); err != nil {
			t.Error(err)
		}
	})
	policy := writeFile(t, filepath.Join(t.TempDir(), "policy.yaml"), "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Request, verbs: [create], resources: [{resources: [pods]}]}]\n")
	if err := run(ctx, "create", "cluster", "--kube-audit-policy", policy, "--runtime", "binary", "--wait", "1m",
		"--kube-apiserver-binary", filepath.Join(dir, "kube-apiserver"), "--etcd-binary", filepath.Join(dir, "etcd"),
		"--kube-controller-manager-binary", filepath.Join(programs, "kube-controller-manager"), "--kube-scheduler-binary", filepath.Join(programs, "kube-scheduler"),
		"--kwok-controller-binary", filepath.Join(programs, "kwok")); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(home, "clusters", "test", "kubeconfig.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(ctx, "scale", "node", "--replicas", "1"); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "i"}}},
	}
	isRunning := func() error {
		found, err := client.CoreV1().Pods("default").Get(ctx, "one", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			// The controller manager has to create the service account first.
			if _, err = client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err == nil {
				err = errors.New("created")
			}
		}
		if err == nil && found.Status.Phase != corev1.PodRunning {
			err = errors.New(string(found.Status.Phase))
		}
		return err
	}
	if err := testbed.Poll(ctx, time.Minute, isRunning); err != nil {
		t.Fatal(err)
	}
	created, err := client.CoreV1().Pods("default").Get(ctx, "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if log, err := os.ReadFile(filepath.Join(home, "clusters", "test", "logs", "audit.log")); err != nil || !strings.Contains(string(log), `"requestObject":{`) {
		t.Errorf("the audit log has no Pod: %v", err)
	}
	if err := run(ctx, "stop", "cluster"); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.Get(config.Host); err == nil {
		_ = resp.Body.Close()
		t.Error("the cluster is stopped, and kube-apiserver is not")
	}
	if err := run(ctx, "start", "cluster", "--wait", "1m"); err != nil {
		t.Fatal(err)
	}
	if again, err := client.CoreV1().Pods("default").Get(ctx, "one", metav1.GetOptions{}); err != nil || again.UID != created.UID {
		t.Errorf("after a restart: %v", err)
	}
}
