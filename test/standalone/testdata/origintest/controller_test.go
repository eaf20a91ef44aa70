package operator

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/origin/origintest"
)

func TestController(t *testing.T) {
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
