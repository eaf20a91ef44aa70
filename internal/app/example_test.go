package app_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/app"
)

// ExampleNewStandalone runs a Kubernetes API inside another program.
func ExampleNewStandalone() {
	ctx := context.Background()
	c := config.DefaultStandalone()
	c.Listen, c.AdminListen = "127.0.0.1:0", ""
	s, err := app.NewStandalone(ctx, c, app.StandaloneOptions{
		NoDataDir: true, UserAgent: "example", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := s.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer s.Drain()

	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	namespace, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(namespace.Name)
	// Output: kube-system
}
