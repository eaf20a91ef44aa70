package origintest_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/origin/origintest"
)

// ExampleStart shows a test against a complete Kubernetes API in the process of the test.
func ExampleStart() {
	test := func(t *testing.T) {
		api := origintest.Start(t)
		client := kubernetes.NewForConfigOrDie(api.Config())
		settings := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "settings"},
			Data:       map[string]string{"color": "blue"},
		}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	_ = test // go test calls it, as any other TestXxx
}

// ExampleAPI_ConfigFor shows a test of the permissions of an ordinary user.
func ExampleAPI_ConfigFor() {
	test := func(t *testing.T) {
		api := origintest.Start(t)
		jane := kubernetes.NewForConfigOrDie(api.ConfigFor("jane", "developers"))
		_, err := jane.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("jane lists Secrets: %v", err)
		}
	}
	_ = test // go test calls it, as any other TestXxx
}
