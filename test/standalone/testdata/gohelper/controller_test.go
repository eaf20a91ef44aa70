package controller

import (
	"log"
	"net/http"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/origin/kubeweirtest"
)

var (
	server *kubeweirtest.Server
	shared *rest.Config
)

func TestMain(m *testing.M) {
	var err error
	if server, err = kubeweirtest.Launch(); err != nil {
		log.Fatal(err)
	}
	shared = server.Config()
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

func TestShared(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(shared)
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
	for range 2 {
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post(server.TestAPI()+"reset", "", nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		_ = resp.Body.Close()
	}
}

func TestNamespaceIsDeleted(t *testing.T) {
	ctx := t.Context()
	client := kubernetes.NewForConfigOrDie(kubeweirtest.Start(t, "--controllers=namespace"))
	team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, team, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Namespaces().Delete(ctx, "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		_, err := client.CoreV1().Namespaces().Get(ctx, "team", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the namespace is still there")
		}
	}
}
