package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/kubeweir/kubeweir/internal/soak"
)

const strictRounds = 200

// TestStrictLists checks that a list without resourceVersion reflects every write that
// kube-apiserver acknowledged to anybody before the list started, also if the cache serves it, as a
// whole or in pages, while others write.
func TestStrictLists(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	createNamespaces(ctx, t, sessionNamespace)
	g := startGateway(t)
	direct, _ := directClients(t)
	gateway, err := kubernetes.NewForConfig(g.AdminConfig())
	must(t, err)
	writer, reader := direct.CoreV1().ConfigMaps(sessionNamespace), gateway.CoreV1().ConfigMaps(sessionNamespace)
	for range 2 { // a repeated list is cached
		_, err := reader.List(ctx, metav1.ListOptions{})
		must(t, err)
	}
	stop := writeAround(ctx, t, soak.Seed(t))
	const label = "strict=mine"
	present := map[string]string{}
	for i := range strictRounds {
		name := fmt.Sprintf("strict-%d", i%20)
		if present[name] == "" {
			made, err := writer.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"strict": "mine"}}}, metav1.CreateOptions{})
			must(t, err)
			present[name] = made.ResourceVersion
		} else {
			must(t, writer.Delete(ctx, name, metav1.DeleteOptions{}))
			delete(present, name)
		}
		if i == strictRounds/2 {
			stop() // afterwards only the cluster's own writes advance the version
		}
		found := map[string]string{}
		p := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return reader.List(ctx, opts)
		})
		p.PageSize = []int64{0, 7, 500}[i%3]
		must(t, p.EachListItem(ctx, metav1.ListOptions{LabelSelector: []string{label, ""}[i%2]}, func(o runtime.Object) error {
			if c := o.(*corev1.ConfigMap); c.Labels["strict"] == "mine" {
				found[c.Name] = c.ResourceVersion
			}
			return nil
		}))
		if fmt.Sprint(found) != fmt.Sprint(present) {
			t.Fatalf("round %d: listed %v, acknowledged %v", i, found, present)
		}
	}
	revalidated, requested := readsFrom(ctx, t, g, "revalidated", "cached"), readsFrom(ctx, t, g, "collapsed", "forwarded")
	t.Logf("%v lists were revalidated, %v were served by kube-apiserver", revalidated, requested)
	if revalidated < strictRounds || requested > revalidated/4 {
		t.Errorf("%v lists were revalidated, %v served by kube-apiserver", revalidated, requested)
	}
}
