package controller

import (
	"log"
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

var shared *rest.Config

func TestMain(m *testing.M) {
	server, err := kubeweirtest.Launch()
	if err != nil {
		log.Fatal(err)
	}
	shared = server.Config()
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

func TestShared(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(shared)
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
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
